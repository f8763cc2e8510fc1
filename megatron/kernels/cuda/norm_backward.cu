// Gradients of norm_forward.cu in one pass over the rows: dx, and the sums for gamma and beta on the way.
#include "megatron/kernels/cuda/layer_norm.h"
#include "megatron/kernels/cuda/rms_norm.h"
#include "megatron/kernels/cuda/row_teams.cuh"

namespace megatron::kernels {
namespace {

template <class X>
struct Backward {
  X z, gamma, dy, dresidual, dx;
  const float *mean, *rstd;
  float gamma_offset;
  float* partial;  // [blocks, outputs, h]; null: no sums are wanted
};

/// Where the packs of the operands lie in a stage.
template <int kPacks>
struct Planes {
  int z, dy, dresidual;
  template <class X>
  __device__ explicit Planes(const Backward<X>& args)
      : z(args.z.dtype == DType::kFloat32 ? 2 : 1),
        dy(args.dy.dtype == DType::kFloat32 ? 2 : 1),
        dresidual(args.dresidual.dtype == DType::kFloat32 ? 2 : 1) {}
  __device__ int z_at(int k) const { return k * z; }
  __device__ int dy_at(int k) const { return kPacks * z + k * dy; }
  __device__ int dresidual_at(int k) const { return kPacks * (z + dy) + k * dresidual; }
};

template <int kPacks, class X>
__device__ void put_row(const Backward<X>& args, PackQueue& queue, int64_t row, const Extent& extent) {
  if (row < extent.true_rows()) {
    const Planes<kPacks> planes(args);
    const int64_t z_row = args.z.at(row, 0), dy_row = args.dy.at(row, 0);
    const int64_t other_row = args.dresidual ? args.dresidual.at(row, 0) : 0;
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      const int64_t begin = begin_of(k);
      if (begin >= extent.columns) continue;
      const int n = pack_size(extent.columns, begin);
      queue.put(args.z, z_row + begin, n, planes.z_at(k));
      queue.put(args.dy, dy_row + begin, n, planes.dy_at(k));
      if (args.dresidual) queue.put(args.dresidual, other_row + begin, n, planes.dresidual_at(k));
    }
  }
  queue.advance();
}

/// Adds the sums of the teams in their order and stores those of the block.
template <int kOutputs, int kPacks>
__device__ void store_partial(float* partial, float (&sums)[kOutputs][kPacks][kPack], int64_t columns, float* shared) {
  const int num_threads = static_cast<int>(blockDim.x * blockDim.y);
  const int own = static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x);
  const auto store_pack = [&](int output, int k, const Pack& pack) {
    float* out = partial + (static_cast<int64_t>(blockIdx.x) * kOutputs + output) * columns + begin_of(k);
#pragma unroll
    for (int e = 0; e < kPack; ++e)
      if (begin_of(k) + e < columns) out[e] = pack.v[e];
  };
  if (blockDim.y > 1) __syncthreads();  // the last rows are read
#pragma unroll
  for (int output = 0; output < kOutputs; ++output)
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      Pack pack;
#pragma unroll
      for (int e = 0; e < kPack; ++e) {
        pack.v[e] = sums[output][k][e];
        if (blockDim.y > 1) shared[((output * kPacks + k) * kPack + e) * num_threads + own] = pack.v[e];
      }
      if (blockDim.y == 1) store_pack(output, k, pack);
    }
  if (blockDim.y == 1) return;
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.y); i < kOutputs * kPacks; i += static_cast<int>(blockDim.y)) {
    Pack pack = {};
    for (unsigned team = 0; team < blockDim.y; ++team)
#pragma unroll
      for (int e = 0; e < kPack; ++e)
        pack.v[e] += shared[(i * kPack + e) * num_threads + static_cast<int>(team * blockDim.x + threadIdx.x)];
    store_pack(i / kPacks, i % kPacks, pack);
  }
}

/// xhat = (z - mean) * rstd and g = dy * gamma of a pack; elements past the row are 0.
struct Factors {
  Pack xhat, dy, g;
};
__device__ inline Factors factors_of(const RawPack& z, const RawPack& dy, const Pack& gamma, float mean, float rstd) {
  Factors f{convert(z), convert(dy)};
#pragma unroll
  for (int e = 0; e < kPack; ++e) {
    f.xhat.v[e] = (f.xhat.v[e] - mean) * rstd;
    f.g.v[e] = f.dy.v[e] * gamma.v[e];
  }
  return f;
}

/// What a row is multiplied by, with its offset.
template <class X>
__device__ Pack gamma_of(const Backward<X>& args, int64_t begin, int64_t columns) {
  Pack gamma = {};
  if (begin >= columns) return gamma;
  if (args.gamma) gamma = load(args.gamma, begin, pack_size(columns, begin));
#pragma unroll
  for (int e = 0; e < kPack; ++e) gamma.v[e] = args.gamma ? gamma.v[e] + args.gamma_offset : 1.0f;
  return gamma;
}

/// Threads of a block: as many as registers allow.
template <class X, int kPacks>
constexpr unsigned kBlockThreads = kIsWhole<X>&& kPacks == 1 ? RowTeams::kMostBlockThreads : RowTeams::kMostThreads;

/// Block i has the rows of its teams, so that the sums depend on the number of blocks alone. A thread with one pack
/// keeps gamma for all rows, and the factors of a row until its sums are known; others read them again.
template <class X, int kPacks, bool kIsLayer>
__global__ void __launch_bounds__(kBlockThreads<X, kPacks>)
    norm_backward_kernel(Extent extent, Backward<X> args, PackRing ring) {
  extern __shared__ uint4 shared[];
  constexpr int kSums = kIsLayer ? 2 : 1;
  constexpr bool kKeeps = kPacks == 1;
  PackQueue queue(ring, shared);
  const Planes<kPacks> planes(args);
  const int64_t rows = extent.true_rows(), columns = extent.columns;
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.y;
  const float share = 1 / static_cast<float>(columns);
  float sums[kSums][kPacks][kPack] = {};
  int64_t row = row_of_block();
  for (int stage = 0; stage < ring.stages; ++stage) put_row<kPacks>(args, queue, row + stage * step, extent);
  Pack gamma;
  if constexpr (kKeeps) gamma = gamma_of(args, begin_of(0), columns);
  float mean = 0, rstd = row < rows ? args.rstd[row] : 0;
  if (kIsLayer && row < rows) mean = args.mean[row];
  for (int turn = 0; row < rows; row += step, turn ^= 1) {
    const int64_t next = row + step;
    const float next_rstd = next < rows ? args.rstd[next] : 0,
                next_mean = kIsLayer && next < rows ? args.mean[next] : 0;
    const int64_t z_row = args.z.at(row, 0), dy_row = args.dy.at(row, 0);
    queue.wait();
    const auto factors = [&](int k, int n) {
      if constexpr (!kKeeps) gamma = gamma_of(args, begin_of(k), columns);
      return factors_of(queue.get(args.z, z_row + begin_of(k), n, planes.z_at(k)),
                        queue.get(args.dy, dy_row + begin_of(k), n, planes.dy_at(k)), gamma, mean, rstd);
    };
    Factors f;
    float means[kSums] = {};  // of g * xhat, and of g
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      if (begin_of(k) >= columns) continue;
      f = factors(k, pack_size(columns, begin_of(k)));
#pragma unroll
      for (int e = 0; e < kPack; ++e) {
        sums[0][k][e] += f.dy.v[e] * f.xhat.v[e];
        means[0] += f.g.v[e] * f.xhat.v[e];
        if constexpr (kIsLayer) {
          sums[1][k][e] += f.dy.v[e];
          means[1] += f.g.v[e];
        }
      }
    }
    reduce_team(means, turn);
    const float mean_g_xhat = means[0] * share, mean_g = kIsLayer ? means[kSums - 1] * share : 0;
    const int64_t other_row = args.dresidual ? args.dresidual.at(row, 0) : 0;
    const int64_t dx_row = args.dx ? args.dx.at(row, 0) : 0;
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      const int64_t begin = begin_of(k);
      if (begin >= columns || !args.dx) continue;
      const int n = pack_size(columns, begin);
      if constexpr (!kKeeps) f = factors(k, n);
      Pack dx =
          args.dresidual ? convert(queue.get(args.dresidual, other_row + begin, n, planes.dresidual_at(k))) : Pack{};
#pragma unroll
      for (int e = 0; e < kPack; ++e) dx.v[e] += (f.g.v[e] - mean_g - f.xhat.v[e] * mean_g_xhat) * rstd;
      store(args.dx, dx_row + begin, n, dx);
    }
    put_row<kPacks>(args, queue, row + ring.stages * step, extent);
    rstd = next_rstd;
    mean = next_mean;
  }
  if (args.partial) store_partial(args.partial, sums, columns, reinterpret_cast<float*>(shared));
}

template <bool kIsLayer>
void run_backward(const CudaStream& stream, const ConstView& x, Backward<Operand> args, const View& dgamma,
                  const View& dbeta, bool accumulate, const View& workspace) {
  constexpr int kOutputs = kIsLayer ? 2 : 1;
  const View outs[2] = {dgamma, dbeta};
  const Extent extent(x);
  if (extent.columns == 0) return;
  if (dgamma.defined() || dbeta.defined())
    args.partial = column_sum_workspace("norm_backward", workspace, extent.rows, kOutputs * extent.columns);
  if (extent.is_empty() && !args.partial) return;
  int64_t blocks = 0;
  with_operand_type(extent.columns, {args.z, args.gamma, args.dy, args.dresidual, args.dx}, [&](auto type) {
    using X = decltype(type);
    RowTeams teams("norm_backward", extent.columns, RowTeams::kMostThreads);
    teams.fill_block(teams.packs == 1 ? kBlockThreads<X, 1> : kBlockThreads<X, 2>);
    const unsigned threads = teams.x * teams.y;
    blocks = std::clamp<int64_t>(teams.blocks(extent.rows), 1, kMostColumnSumParts);
    const PackRing ring(PackRing::planes_of(args.z, teams.packs) + PackRing::planes_of(args.dy, teams.packs) +
                            PackRing::planes_of(args.dresidual, teams.packs),
                        threads, 1);
    const int64_t sums_bytes = teams.y > 1 ? int64_t{4} * kOutputs * teams.packs * kPack * threads : 0;
    const auto bytes = static_cast<size_t>(std::max(ring.bytes(threads), sums_bytes));
    with_packs(teams.packs, [&](auto packs) {
      const auto kernel = norm_backward_kernel<X, packs, kIsLayer>;
      allow_shared_memory("norm_backward", kernel, static_cast<int64_t>(bytes));
      kernel<<<static_cast<unsigned>(blocks), teams.threads(), bytes, stream.stream>>>(
          extent,
          {X(args.z), X(args.gamma), X(args.dy), X(args.dresidual), X(args.dx), args.mean, args.rstd, args.gamma_offset,
           args.partial},
          ring);
    });
  });
  check_launch("norm_backward");
  if (args.partial) store_column_sums(stream, args.partial, blocks, extent.columns, kOutputs, outs, accumulate);
}

const float* statistics(const ConstView& view) { return view.defined() ? view.as<float>() : nullptr; }
float offset_of(bool zero_centered_gamma) { return zero_centered_gamma ? 1.0f : 0.0f; }

}  // namespace

void rms_norm_backward(const CudaStream& stream, const RmsNormBackwardArgs& args) {
  run_backward<false>(stream, args.x,
                      {Operand(args.x), Operand(args.gamma), Operand(args.dy), Operand(args.dresidual),
                       Operand(args.dx), nullptr, statistics(args.rstd), offset_of(args.zero_centered_gamma), nullptr},
                      args.dgamma, {}, args.accumulate, args.workspace);
}

void layer_norm_backward(const CudaStream& stream, const LayerNormBackwardArgs& args) {
  run_backward<true>(stream, args.x,
                     {Operand(args.x), Operand(args.gamma), Operand(args.dy), Operand(args.dresidual), Operand(args.dx),
                      statistics(args.mean), statistics(args.rstd), offset_of(args.zero_centered_gamma), nullptr},
                     args.dgamma, args.dbeta, args.accumulate, args.workspace);
}

}  // namespace megatron::kernels
