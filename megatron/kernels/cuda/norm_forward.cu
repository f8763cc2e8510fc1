// RMS and layer normalisation: y = (z - mean) * rstd * gamma + beta over rows, mean 0 for RMS.
#include "megatron/kernels/cuda/layer_norm.h"
#include "megatron/kernels/cuda/rms_norm.h"
#include "megatron/kernels/cuda/row_teams.cuh"

namespace megatron::kernels {
namespace {

template <class X>
struct Forward {
  X x, residual, gamma, beta, residual_out, y;
  float *mean, *rstd;
  float eps, gamma_offset;
};

template <int kPacks, class X>
__device__ void put_row(const Forward<X>& args, PackQueue& queue, int64_t row, const Extent& extent) {
  if (row < extent.true_rows()) {
    const int64_t x_row = args.x.at(row, 0), residual_row = args.residual ? args.residual.at(row, 0) : 0;
    const int x_planes = args.x.dtype == DType::kFloat32 ? 2 : 1;
    const int residual_planes = args.residual.dtype == DType::kFloat32 ? 2 : 1;
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      if (begin_of(k) >= extent.columns) continue;
      const int n = pack_size(extent.columns, begin_of(k));
      queue.put(args.x, x_row + begin_of(k), n, k * x_planes);
      if (args.residual)
        queue.put(args.residual, residual_row + begin_of(k), n, kPacks * x_planes + k * residual_planes);
    }
  }
  queue.advance();
}

/// The packs of z, and their place in residual_out where there is a residual. Elements past the row are 0.
template <int kPacks, class X>
__device__ void get_row(const Forward<X>& args, const PackQueue& queue, int64_t row, int64_t columns,
                        Pack (&z)[kPacks]) {
  const int64_t x_row = args.x.at(row, 0), residual_row = args.residual ? args.residual.at(row, 0) : 0;
  const int x_planes = args.x.dtype == DType::kFloat32 ? 2 : 1;
  const int residual_planes = args.residual.dtype == DType::kFloat32 ? 2 : 1;
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    z[k] = Pack{};
    if (begin_of(k) >= columns) continue;
    const int n = pack_size(columns, begin_of(k));
    z[k] = convert(queue.get(args.x, x_row + begin_of(k), n, k * x_planes));
    if (!args.residual) continue;
    const Pack other =
        convert(queue.get(args.residual, residual_row + begin_of(k), n, kPacks * x_planes + k * residual_planes));
#pragma unroll
    for (int e = 0; e < kPack; ++e) z[k].v[e] = round_to(args.residual_out.dtype, z[k].v[e] + other.v[e]);
    store(args.residual_out, row, begin_of(k), n, z[k]);
  }
}

constexpr int64_t kWarpColumns = int64_t{4} * kWarp * kPack;

/// What a row is multiplied by, with its offset, and what is added.
struct Affine {
  Pack gamma, beta;
};
template <bool kIsLayer, class X>
__device__ Affine affine_of(const Forward<X>& args, int64_t begin, int64_t columns) {
  Affine affine = {};
  if (begin >= columns) return affine;
  const int n = pack_size(columns, begin);
  if (args.gamma) affine.gamma = load(args.gamma, begin, n);
  if (kIsLayer && args.beta) affine.beta = load(args.beta, begin, n);
#pragma unroll
  for (int e = 0; e < kPack; ++e) affine.gamma.v[e] = args.gamma ? affine.gamma.v[e] + args.gamma_offset : 1.0f;
  return affine;
}

/// A thread with one pack keeps gamma and beta for all rows.
template <class X, int kPacks, bool kIsLayer>
__global__ void __launch_bounds__(RowTeams::kMostThreads)
    norm_forward_kernel(Extent extent, Forward<X> args, PackRing ring) {
  extern __shared__ uint4 shared[];
  PackQueue queue(ring, shared);
  const int64_t rows = extent.true_rows(), columns = extent.columns;
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.y;
  const float share = 1 / static_cast<float>(columns);
  int64_t row = row_of_block();
  for (int stage = 0; stage < ring.stages; ++stage) put_row<kPacks>(args, queue, row + stage * step, extent);
  Affine affine;
  if constexpr (kPacks == 1) affine = affine_of<kIsLayer>(args, begin_of(0), columns);
  for (int turn = 0; row < rows; row += step) {
    Pack z[kPacks];
    queue.wait();
    get_row(args, queue, row, columns, z);
    put_row<kPacks>(args, queue, row + ring.stages * step, extent);
    float mean = 0;
    if constexpr (kIsLayer) {
      float sum[1] = {};
#pragma unroll
      for (int k = 0; k < kPacks; ++k)
#pragma unroll
        for (int e = 0; e < kPack; ++e) sum[0] += z[k].v[e];
      reduce_team(sum, turn);
      turn ^= 1;
      mean = sum[0] * share;
    }
    float squares[1] = {};
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      if (begin_of(k) >= columns) continue;
#pragma unroll
      for (int e = 0; e < kPack; ++e)
        squares[0] += kIsWhole<X> || begin_of(k) + e < columns ? (z[k].v[e] - mean) * (z[k].v[e] - mean) : 0;
    }
    reduce_team(squares, turn);
    turn ^= 1;
    const float rstd = 1 / sqrtf(squares[0] * share + args.eps);
    const int64_t y_row = args.y.at(row, 0);
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      if (begin_of(k) >= columns) continue;
      if constexpr (kPacks > 1) affine = affine_of<kIsLayer>(args, begin_of(k), columns);
      Pack y;
#pragma unroll
      for (int e = 0; e < kPack; ++e) {
        y.v[e] = (z[k].v[e] - mean) * rstd * affine.gamma.v[e];
        if constexpr (kIsLayer) y.v[e] += affine.beta.v[e];
      }
      store(args.y, y_row + begin_of(k), pack_size(columns, begin_of(k)), y);
    }
    if (threadIdx.x != 0) continue;
    if (args.mean) args.mean[row] = mean;
    if (args.rstd) args.rstd[row] = rstd;
  }
}

template <bool kIsLayer>
void run_forward(const CudaStream& stream, const ConstView& x, const Forward<Operand>& args) {
  const Extent extent(x);
  if (extent.is_empty()) return;
  // A short row is one warp's, which needs no barrier.
  const unsigned wanted = extent.columns <= kWarpColumns ? kWarp : 256;
  const RowTeams teams = RowTeams("norm_forward", extent.columns, wanted).fill_block(256);
  const unsigned threads = teams.x * teams.y;
  const PackRing ring(PackRing::planes_of(args.x, teams.packs) + PackRing::planes_of(args.residual, teams.packs),
                      threads, 4);
  const auto run = [&](auto type, auto packs) {
    using X = decltype(type);
    const auto kernel = norm_forward_kernel<X, packs, kIsLayer>;
    const auto bytes = static_cast<size_t>(ring.bytes(threads));
    allow_shared_memory("norm_forward", kernel, ring.bytes(threads));
    const int64_t resident = num_resident_blocks("norm_forward", kernel, static_cast<int>(threads), bytes);
    const auto blocks = static_cast<unsigned>(std::min(resident, teams.blocks(extent.rows)));
    kernel<<<blocks, teams.threads(), bytes, stream.stream>>>(
        extent,
        {X(args.x), X(args.residual), X(args.gamma), X(args.beta), X(args.residual_out), X(args.y), args.mean,
         args.rstd, args.eps, args.gamma_offset},
        ring);
  };
  with_operand_type(extent.columns, {args.x, args.residual, args.gamma, args.beta, args.residual_out, args.y},
                    [&](auto type) { with_packs(teams.packs, [&](auto packs) { run(type, packs); }); });
  check_launch("norm_forward");
}

float* statistics(const View& view) { return view.defined() ? view.as<float>() : nullptr; }
float offset_of(bool zero_centered_gamma) { return zero_centered_gamma ? 1.0f : 0.0f; }

}  // namespace

void rms_norm_forward(const CudaStream& stream, const RmsNormForwardArgs& args) {
  run_forward<false>(stream, args.x,
                     {Operand(args.x), Operand(args.residual), Operand(args.gamma), Operand(),
                      Operand(args.residual_out), Operand(args.y), nullptr, statistics(args.rstd),
                      static_cast<float>(args.eps), offset_of(args.zero_centered_gamma)});
}

void layer_norm_forward(const CudaStream& stream, const LayerNormForwardArgs& args) {
  run_forward<true>(stream, args.x,
                    {Operand(args.x), Operand(args.residual), Operand(args.gamma), Operand(args.beta),
                     Operand(args.residual_out), Operand(args.y), statistics(args.mean), statistics(args.rstd),
                     static_cast<float>(args.eps), offset_of(args.zero_centered_gamma)});
}

}  // namespace megatron::kernels
