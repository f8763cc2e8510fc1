// Gradients of norm_forward.cu in one pass over the rows: dx, and the sums for gamma and beta.
#include "megatron/kernels/cuda/row_teams.cuh"
#include "megatron/kernels/layer_norm.h"
#include "megatron/kernels/rms_norm.h"

namespace megatron::kernels {
namespace {

template <class X>
struct Backward {
  X z, gamma, dy, dresidual, dx;
  const float *mean, *rstd;
  float gamma_offset;
  float* partial;  // [blocks, outputs, h]; null: no sums are requested
};

/// The packs of a row that a thread reads.
template <int kPacks>
struct RawRow {
  RawPack z[kPacks], dy[kPacks], dresidual[kPacks];
  float mean = 0, rstd = 0;
};

template <bool kIsLayer, int kPacks, class X>
__device__ void fetch(RawRow<kPacks>& raw, const Backward<X>& args, int64_t row, const Extent& extent) {
  const int64_t z_row = args.z.at(row, 0), dy_row = args.dy.at(row, 0);
  const int64_t other_row = args.dresidual ? args.dresidual.at(row, 0) : 0;
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    if (!has_pack(extent, k)) continue;
    const int n = size_of_pack<X>(extent, k);
    raw.z[k] = load_raw(args.z, z_row + begin_of(k), n);
    raw.dy[k] = load_raw(args.dy, dy_row + begin_of(k), n);
    if (args.dresidual) raw.dresidual[k] = load_raw(args.dresidual, other_row + begin_of(k), n);
  }
  raw.rstd = args.rstd[row];
  if (kIsLayer) raw.mean = args.mean[row];
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
template <class X>
__device__ Factors factors_of(const RawPack& z, const RawPack& dy, const Pack& gamma, float mean, float rstd) {
  Factors f{values_of<X>(z), values_of<X>(dy)};
#pragma unroll
  for (int e = 0; e < kPack; ++e) {
    f.xhat.v[e] = (f.xhat.v[e] - mean) * rstd;
    f.g.v[e] = f.dy.v[e] * gamma.v[e];
  }
  return f;
}

/// Factor and offset of a row.
template <class X>
__device__ Pack gamma_of(const Backward<X>& args, const Extent& extent, int k) {
  Pack gamma = {};
  if (!has_pack(extent, k)) return gamma;
  if (args.gamma) gamma = load(args.gamma, begin_of(k), size_of_pack<X>(extent, k));
#pragma unroll
  for (int e = 0; e < kPack; ++e) gamma.v[e] = args.gamma ? gamma.v[e] + args.gamma_offset : 1.0f;
  return gamma;
}

/// Packs of a thread, limited by registers.
template <class X>
constexpr int kWantedPacks = kIsWhole<X> ? 2 : 1;

/// Block i has the rows of its teams, so that the sums depend on the number of blocks alone. A thread of few packs
/// keeps gamma for all rows, and the factors of a row until its sums are known; others recompute them.
template <class X, int kPacks, bool kIsLayer>
__global__ void __launch_bounds__(RowTeams::kMostThreads) norm_backward_kernel(Extent extent, Backward<X> args) {
  extern __shared__ float shared[];
  constexpr int kSums = kIsLayer ? 2 : 1;
  constexpr bool kKeeps = kPacks <= 2, kAhead = kIsAhead<X, kPacks> && kKeeps;
  const int64_t rows = extent.true_rows(), step = static_cast<int64_t>(gridDim.x) * blockDim.y;
  const float share = 1 / static_cast<float>(extent.columns);
  float sums[kSums][kPacks][kPack] = {};
  int64_t row = row_of_block();
  RawRow<kPacks> raw = {};
  if (kAhead && row < rows) fetch<kIsLayer>(raw, args, row, extent);
  Pack gamma[kKeeps ? kPacks : 1];
#pragma unroll
  for (int k = 0; kKeeps && k < kPacks; ++k) gamma[k] = gamma_of(args, extent, k);
  for (int turn = 0; row < rows; row += step, turn ^= 1) {
    if (!kAhead) fetch<kIsLayer>(raw, args, row, extent);
    const float mean = raw.mean, rstd = raw.rstd;
    const auto factors = [&](int k) {
      return factors_of<X>(raw.z[k], raw.dy[k], kKeeps ? gamma[kKeeps ? k : 0] : gamma_of(args, extent, k), mean, rstd);
    };
    Factors f[kKeeps ? kPacks : 1];
    RawPack dresidual[kPacks];
    float means[kSums] = {};  // of g * xhat, and of g
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      if (!has_pack(extent, k)) continue;
      const int kept = kKeeps ? k : 0;
      f[kept] = factors(k);
#pragma unroll
      for (int e = 0; e < kPack; ++e) {
        const float dy = f[kept].dy.v[e], g = f[kept].g.v[e], xhat = f[kept].xhat.v[e];
        sums[0][k][e] += dy * xhat;
        means[0] += g * xhat;
        if constexpr (kIsLayer) {
          sums[1][k][e] += dy;
          means[1] += g;
        }
      }
    }
#pragma unroll
    for (int k = 0; k < kPacks; ++k) dresidual[k] = raw.dresidual[k];
    if (kAhead && row + step < rows) fetch<kIsLayer>(raw, args, row + step, extent);
    reduce_team(means, turn);
    const float of_xhat = means[0] * share * rstd, of_one = kIsLayer ? means[kSums - 1] * share * rstd : 0;
    const int64_t dx_row = args.dx ? args.dx.at(row, 0) : 0;
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      if (!has_pack(extent, k) || !args.dx) continue;
      const int kept = kKeeps ? k : 0;
      if constexpr (!kKeeps) f[kept] = factors(k);
      Pack dx = values_of<X>(dresidual[k]);
#pragma unroll
      for (int e = 0; e < kPack; ++e)
        dx.v[e] = fmaf(-f[kept].xhat.v[e], of_xhat, fmaf(f[kept].g.v[e], rstd, dx.v[e] - of_one));
      store(args.dx, dx_row + begin_of(k), size_of_pack<X>(extent, k), dx);
    }
  }
  if (args.partial) store_partial(args.partial, sums, extent.columns, shared);
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
    const RowTeams teams("norm_backward", extent.columns, kWantedPacks<X>, RowTeams::kMostThreads);
    const unsigned threads = teams.x * teams.y;
    blocks = std::clamp<int64_t>(teams.blocks(extent.rows), 1, kMostColumnSumParts);
    const int64_t bytes = teams.y > 1 ? int64_t{4} * kOutputs * teams.packs * kPack * threads : 0;
    with_packs(teams.packs, [&](auto packs) {
      const auto kernel = norm_backward_kernel<X, packs, kIsLayer>;
      allow_shared_memory("norm_backward", kernel, bytes);
      kernel<<<static_cast<unsigned>(blocks), teams.threads(), static_cast<size_t>(bytes), stream.stream>>>(
          extent, {X(args.z), X(args.gamma), X(args.dy), X(args.dresidual), X(args.dx), args.mean, args.rstd,
                   args.gamma_offset, args.partial});
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
