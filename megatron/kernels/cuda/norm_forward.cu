// RMS and layer normalisation: y = (z - mean) * rstd * gamma + beta over rows, mean 0 for RMS.
#include "megatron/kernels/cuda/row_teams.cuh"
#include "megatron/kernels/layer_norm.h"
#include "megatron/kernels/rms_norm.h"

namespace megatron::kernels {
namespace {

/// Packs of a thread, limited by registers; with as many, a warp handles a short row and needs no barrier.
template <class X, bool kIsLayer, bool kHasResidual>
constexpr int kWantedPacks = !kHasResidual  ? 4
                             : !kIsWhole<X> ? 1
                             : kIsLayer     ? 3
                                            : 4;
constexpr unsigned kForwardThreads = 128;

template <class X>
struct Forward {
  X x, residual, gamma, beta, residual_out, y;
  float *mean, *rstd;
  float eps, gamma_offset;
};

/// The packs of a row that a thread reads.
template <int kPacks, bool kHasResidual>
struct RawRow {
  RawPack x[kPacks], residual[kHasResidual ? kPacks : 1];
};

template <int kPacks, bool kHasResidual, class X>
__device__ void fetch(RawRow<kPacks, kHasResidual>& raw, const Forward<X>& args, int64_t row, const Extent& extent) {
  const int64_t x_row = args.x.at(row, 0), residual_row = kHasResidual ? args.residual.at(row, 0) : 0;
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    if (!has_pack(extent, k)) continue;
    const int n = size_of_pack<X>(extent, k);
    raw.x[k] = load_raw(args.x, x_row + begin_of(k), n);
    if constexpr (kHasResidual) raw.residual[k] = load_raw(args.residual, residual_row + begin_of(k), n);
  }
}

/// The packs of z, also stored to residual_out if there is a residual. Elements past the row are 0.
template <int kPacks, bool kHasResidual, class X>
__device__ void add_up(Pack (&z)[kPacks], const RawRow<kPacks, kHasResidual>& raw, const Forward<X>& args, int64_t row,
                       const Extent& extent) {
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    z[k] = Pack{};
    if (!has_pack(extent, k)) continue;
    z[k] = values_of<X>(raw.x[k]);
    if constexpr (!kHasResidual) continue;
    const Pack other = values_of<X>(raw.residual[kHasResidual ? k : 0]);
#pragma unroll
    for (int e = 0; e < kPack; ++e) z[k].v[e] = round_to(args.residual_out.dtype, z[k].v[e] + other.v[e]);
    store(args.residual_out, row, begin_of(k), size_of_pack<X>(extent, k), z[k]);
  }
}

/// Subtracts the mean from the elements of the row, and returns it.
template <int kPacks, class X>
__device__ float subtract_mean(Pack (&z)[kPacks], const Extent& extent, float share, int& turn) {
  float sum[1] = {};
#pragma unroll
  for (int k = 0; k < kPacks; ++k)
#pragma unroll
    for (int e = 0; e < kPack; ++e) sum[0] += z[k].v[e];
  reduce_team(sum, turn);
  turn ^= 1;
  const float mean = sum[0] * share;
#pragma unroll
  for (int k = 0; k < kPacks; ++k)
#pragma unroll
    for (int e = 0; e < kPack; ++e) {
      const int begin = begin_of(k) + (kIsWhole<X> ? 0 : e);
      z[k].v[e] = begin < extent.columns ? z[k].v[e] - mean : 0;
    }
  return mean;
}

template <class X, int kPacks, bool kIsLayer, bool kHasResidual>
__global__ void __launch_bounds__(RowTeams::kMostThreads) norm_forward_kernel(Extent extent, Forward<X> args) {
  constexpr bool kAhead = kIsAhead<X, kPacks>;
  const int64_t rows = extent.true_rows(), step = static_cast<int64_t>(gridDim.x) * blockDim.y;
  const float share = 1 / static_cast<float>(extent.columns);
  int64_t row = row_of_block();
  RawRow<kPacks, kHasResidual> raw;
  if (kAhead && row < rows) fetch(raw, args, row, extent);
  RawPack gamma[kPacks], beta[kPacks];
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    if (!has_pack(extent, k)) continue;
    const int n = size_of_pack<X>(extent, k);
    if (args.gamma) gamma[k] = load_raw(args.gamma, begin_of(k), n);
    if (kIsLayer && args.beta) beta[k] = load_raw(args.beta, begin_of(k), n);
  }
  for (int turn = 0; row < rows; row += step) {
    if (!kAhead) fetch(raw, args, row, extent);
    Pack z[kPacks];
    add_up(z, raw, args, row, extent);
    if (kAhead && row + step < rows) fetch(raw, args, row + step, extent);
    float mean = 0;
    if constexpr (kIsLayer) mean = subtract_mean<kPacks, X>(z, extent, share, turn);
    float squares[1] = {};
#pragma unroll
    for (int k = 0; k < kPacks; ++k)
#pragma unroll
      for (int e = 0; e < kPack; ++e) squares[0] += z[k].v[e] * z[k].v[e];
    reduce_team(squares, turn);
    turn ^= 1;
    const float rstd = __frsqrt_rn(squares[0] * share + args.eps);
    const int64_t y_row = args.y.at(row, 0);
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      if (!has_pack(extent, k)) continue;
#pragma unroll
      for (int e = 0; e < kPack; ++e) z[k].v[e] *= rstd;
      if (args.gamma) {
        const Pack factor = values_of<X>(gamma[k]);
#pragma unroll
        for (int e = 0; e < kPack; ++e) z[k].v[e] *= factor.v[e] + args.gamma_offset;
      }
      if (kIsLayer && args.beta) {
        const Pack added = values_of<X>(beta[k]);
#pragma unroll
        for (int e = 0; e < kPack; ++e) z[k].v[e] += added.v[e];
      }
      store(args.y, y_row + begin_of(k), size_of_pack<X>(extent, k), z[k]);
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
  const auto run = [&](auto type, auto has_residual) {
    using X = decltype(type);
    const RowTeams teams("norm_forward", extent.columns, kWantedPacks<X, kIsLayer, has_residual>, kForwardThreads);
    with_packs(teams.packs, [&](auto packs) {
      const auto kernel = norm_forward_kernel<X, packs, kIsLayer, has_residual>;
      const int64_t resident = num_resident_blocks("norm_forward", kernel, static_cast<int>(teams.x * teams.y), 0);
      const auto blocks = static_cast<unsigned>(std::min(resident, teams.blocks(extent.rows)));
      kernel<<<blocks, teams.threads(), 0, stream.stream>>>(
          extent, {X(args.x), X(args.residual), X(args.gamma), X(args.beta), X(args.residual_out), X(args.y), args.mean,
                   args.rstd, args.eps, args.gamma_offset});
    });
  };
  with_operand_type(extent.columns, {args.x, args.residual, args.gamma, args.beta, args.residual_out, args.y},
                    [&](auto type) { args.residual ? run(type, std::true_type()) : run(type, std::false_type()); });
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
