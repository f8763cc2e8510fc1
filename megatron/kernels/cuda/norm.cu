// RMS and layer normalisation: y = (z - mean) * rstd * gamma + beta over rows, mean 0 for RMS.
#include "megatron/kernels/cuda/layer_norm.h"
#include "megatron/kernels/cuda/reduce.cuh"
#include "megatron/kernels/cuda/rms_norm.h"

namespace megatron::kernels {
namespace {

struct Forward {
  Operand x, residual, gamma, beta, residual_out, y;
  float *mean, *rstd;
  float eps, gamma_offset;
  bool is_layer;
};

/// Threads of a row, so many packs to each that are kept in registers; longer rows are read again each time.
constexpr int kMaxThreads = 512, kForwardPacks = 4, kBackwardPacks = 2;

/// Place of pack number k of a thread.
__device__ int64_t begin_of(int k) { return (static_cast<int64_t>(k) * blockDim.x + threadIdx.x) * kPack; }

/// f(begin, n, pack of z) for the packs of a thread.
template <class F>
__device__ void for_packs(const Operand& z, int64_t row, int64_t columns, const Pack (&kept)[kForwardPacks], F f) {
#pragma unroll
  for (int k = 0; k < kForwardPacks; ++k)
    if (begin_of(k) < columns) f(begin_of(k), pack_size(columns, begin_of(k)), kept[k]);
  for (int64_t begin = begin_of(kForwardPacks); begin < columns; begin += blockDim.x * kPack) {
    const int n = pack_size(columns, begin);
    f(begin, n, load(z, row, begin, n));
  }
}

/// z, and its place in residual_out, where there is a residual.
__device__ Pack add_residual(const Forward& args, const RawPack& x, const RawPack& residual, int64_t row, int64_t begin,
                             int n) {
  Pack z = convert(x);
  if (!args.residual) return z;
  const Pack other = convert(residual);
#pragma unroll
  for (int e = 0; e < kPack; ++e) z.v[e] = round_to(args.residual_out.dtype, z.v[e] + other.v[e]);
  store(args.residual_out, row, begin, n, z);
  return z;
}

/// Fills `kept` with the first packs of z.
__device__ void read_row(const Forward& args, int64_t row, int64_t columns, Pack (&kept)[kForwardPacks]) {
  RawPack x[kForwardPacks], residual[kForwardPacks];
#pragma unroll
  for (int k = 0; k < kForwardPacks; ++k) {
    if (begin_of(k) >= columns) continue;
    x[k] = load_raw(args.x, row, begin_of(k), pack_size(columns, begin_of(k)));
    if (args.residual) residual[k] = load_raw(args.residual, row, begin_of(k), pack_size(columns, begin_of(k)));
  }
#pragma unroll
  for (int k = 0; k < kForwardPacks; ++k) {
    kept[k] = Pack{};
    if (begin_of(k) < columns)
      kept[k] = add_residual(args, x[k], residual[k], row, begin_of(k), pack_size(columns, begin_of(k)));
  }
  if (!args.residual) return;
  for (int64_t begin = begin_of(kForwardPacks); begin < columns; begin += blockDim.x * kPack) {
    const int n = pack_size(columns, begin);
    add_residual(args, load_raw(args.x, row, begin, n), load_raw(args.residual, row, begin, n), row, begin, n);
  }
}

__global__ void __launch_bounds__(kMaxThreads) norm_forward_kernel(Extent extent, Forward args) {
  const int64_t row = row_of_block(), columns = row < extent.true_rows() ? extent.columns : 0;
  const Operand& z_rows = args.residual ? args.residual_out : args.x;
  Pack kept[kForwardPacks];
  read_row(args, row, columns, kept);
  float mean = 0;
  if (args.is_layer) {
    float sum = 0;
    for_packs(z_rows, row, columns, kept, [&](int64_t, int, const Pack& z) {
#pragma unroll
      for (int e = 0; e < kPack; ++e) sum += z.v[e];
    });
    mean = reduce_row(sum, Plus()) / static_cast<float>(extent.columns);
  }
  float squares = 0;
  for_packs(z_rows, row, columns, kept, [&](int64_t, int n, const Pack& z) {
#pragma unroll
    for (int e = 0; e < kPack; ++e) squares += e < n ? (z.v[e] - mean) * (z.v[e] - mean) : 0;
  });
  const float rstd = 1 / sqrtf(reduce_row(squares, Plus()) / static_cast<float>(extent.columns) + args.eps);
  for_packs(z_rows, row, columns, kept, [&](int64_t begin, int n, const Pack& z) {
    const Pack gamma = args.gamma ? load(args.gamma, 0, begin, n) : Pack{};
    const Pack beta = args.beta ? load(args.beta, 0, begin, n) : Pack{};
    Pack y;
#pragma unroll
    for (int e = 0; e < kPack; ++e) {
      const float factor = args.gamma ? gamma.v[e] + args.gamma_offset : 1.0f;
      y.v[e] = (z.v[e] - mean) * rstd * factor + beta.v[e];
    }
    store(args.y, row, begin, n, y);
  });
  if (threadIdx.x != 0 || columns == 0) return;
  if (args.mean) args.mean[row] = mean;
  if (args.rstd) args.rstd[row] = rstd;
}

struct Backward {
  Operand z, gamma, dy, dresidual, dx;
  const float *mean, *rstd;
  float gamma_offset;

  __device__ float mean_of(int64_t row) const { return mean ? mean[row] : 0.0f; }
  /// Replaces z by xhat = (z - mean) * rstd and dy by g = dy * gamma.
  __device__ void derive(Pack& z_pack, Pack& dy_pack, int64_t row, int64_t begin, int n) const {
    const float m = mean_of(row), r = rstd[row];
    const Pack factor = gamma ? load(gamma, 0, begin, n) : Pack{};
#pragma unroll
    for (int e = 0; e < kPack; ++e) {
      z_pack.v[e] = e < n ? (z_pack.v[e] - m) * r : 0;
      if (gamma) dy_pack.v[e] *= factor.v[e] + gamma_offset;
    }
  }
};

/// What a thread holds of a row: xhat, and g = dy * gamma.
struct Factors {
  Pack xhat, g;
};
__device__ Factors factors_at(const Backward& args, int64_t row, int64_t begin, int n) {
  const RawPack z_raw = load_raw(args.z, row, begin, n), dy_raw = load_raw(args.dy, row, begin, n);
  Factors f{convert(z_raw), convert(dy_raw)};
  args.derive(f.xhat, f.g, row, begin, n);
  return f;
}

__global__ void __launch_bounds__(kMaxThreads) norm_backward_kernel(Extent extent, Backward args) {
  const int64_t row = row_of_block(), columns = row < extent.true_rows() ? extent.columns : 0;
  RawPack z[kBackwardPacks], dy[kBackwardPacks], other[kBackwardPacks];
#pragma unroll
  for (int k = 0; k < kBackwardPacks; ++k) {
    const int64_t begin = begin_of(k);
    if (begin >= columns) continue;
    const int n = pack_size(columns, begin);
    z[k] = load_raw(args.z, row, begin, n);
    dy[k] = load_raw(args.dy, row, begin, n);
    if (args.dresidual) other[k] = load_raw(args.dresidual, row, begin, n);
  }
  Factors kept[kBackwardPacks];
  float sum_g = 0, sum_g_xhat = 0;
  const auto add = [&](const Factors& f) {
#pragma unroll
    for (int e = 0; e < kPack; ++e) {
      sum_g += f.g.v[e];
      sum_g_xhat += f.g.v[e] * f.xhat.v[e];
    }
  };
#pragma unroll
  for (int k = 0; k < kBackwardPacks; ++k) {
    if (begin_of(k) >= columns) continue;
    kept[k] = {convert(z[k]), convert(dy[k])};
    args.derive(kept[k].xhat, kept[k].g, row, begin_of(k), pack_size(columns, begin_of(k)));
    add(kept[k]);
  }
  for (int64_t begin = begin_of(kBackwardPacks); begin < columns; begin += blockDim.x * kPack)
    add(factors_at(args, row, begin, pack_size(columns, begin)));
  const float share = 1 / static_cast<float>(extent.columns);
  const float mean_g = args.mean ? reduce_row(sum_g, Plus()) * share : 0;
  const float mean_g_xhat = reduce_row(sum_g_xhat, Plus()) * share;
  const float rstd = columns > 0 ? args.rstd[row] : 0;
  const auto finish = [&](const Factors& f, const Pack& rest, int64_t begin, int n) {
    Pack dx;
#pragma unroll
    for (int e = 0; e < kPack; ++e) dx.v[e] = (f.g.v[e] - mean_g - f.xhat.v[e] * mean_g_xhat) * rstd + rest.v[e];
    store(args.dx, row, begin, n, dx);
  };
#pragma unroll
  for (int k = 0; k < kBackwardPacks; ++k)
    if (begin_of(k) < columns)
      finish(kept[k], args.dresidual ? convert(other[k]) : Pack{}, begin_of(k), pack_size(columns, begin_of(k)));
  for (int64_t begin = begin_of(kBackwardPacks); begin < columns; begin += blockDim.x * kPack) {
    const int n = pack_size(columns, begin);
    const Pack rest = args.dresidual ? load(args.dresidual, row, begin, n) : Pack{};
    finish(factors_at(args, row, begin, n), rest, begin, n);
  }
}

/// Sums over rows of dy * xhat.
struct WeightGradient {
  static constexpr int kRowsAhead = 2;
  Backward args;

  struct Fetched {
    RawPack z, dy;
  };
  __device__ Fetched fetch(int64_t row, int64_t begin, int n) const {
    return {load_raw(args.z, row, begin, n), load_raw(args.dy, row, begin, n)};
  }
  __device__ void use(const Fetched& fetched, int64_t row, int64_t, int, float (*sums)[kPack]) const {
    const Pack z = convert(fetched.z), dy = convert(fetched.dy);
    const float mean = args.mean_of(row), rstd = args.rstd[row];
#pragma unroll
    for (int e = 0; e < kPack; ++e) sums[0][e] += dy.v[e] * ((z.v[e] - mean) * rstd);
  }
};
/// Sums over rows of dy.
struct BiasGradient {
  static constexpr int kRowsAhead = 1;
  Operand dy;
  __device__ RawPack fetch(int64_t row, int64_t begin, int n) const { return load_raw(dy, row, begin, n); }
  __device__ void use(const RawPack& raw, int64_t, int64_t, int, float (*sums)[kPack]) const {
    const Pack values = convert(raw);
#pragma unroll
    for (int e = 0; e < kPack; ++e) sums[0][e] += values.v[e];
  }
};

void run_forward(const CudaStream& stream, const ConstView& x, const Forward& args) {
  const Extent extent(x);
  if (extent.is_empty()) return;
  const RowBlock block(extent.columns, kForwardPacks, kMaxThreads);
  norm_forward_kernel<<<block.blocks(extent.rows), block.threads(), 0, stream.stream>>>(extent, args);
  check_launch("norm_forward");
}

/// The weights' gradients first: dx may be dy.
void run_backward(const CudaStream& stream, const ConstView& x, const Backward& args, const View& dgamma,
                  const View& dbeta, bool accumulate, const View& workspace) {
  const Extent extent(x);
  if (dgamma.defined())
    sum_columns<1>(stream, "norm_backward", extent, workspace, &dgamma, accumulate, WeightGradient{args});
  if (dbeta.defined())
    sum_columns<1>(stream, "norm_backward", extent, workspace, &dbeta, accumulate, BiasGradient{args.dy});
  if (extent.is_empty() || !args.dx) return;
  const RowBlock block(extent.columns, kBackwardPacks, kMaxThreads);
  norm_backward_kernel<<<block.blocks(extent.rows), block.threads(), 0, stream.stream>>>(extent, args);
  check_launch("norm_backward");
}

float* statistics(const View& view) { return view.defined() ? view.as<float>() : nullptr; }
const float* statistics(const ConstView& view) { return view.defined() ? view.as<float>() : nullptr; }
float offset_of(bool zero_centered_gamma) { return zero_centered_gamma ? 1.0f : 0.0f; }

}  // namespace

void rms_norm_forward(const CudaStream& stream, const RmsNormForwardArgs& args) {
  run_forward(stream, args.x,
              {Operand(args.x), Operand(args.residual), Operand(args.gamma), Operand(), Operand(args.residual_out),
               Operand(args.y), nullptr, statistics(args.rstd), static_cast<float>(args.eps),
               offset_of(args.zero_centered_gamma), false});
}

void layer_norm_forward(const CudaStream& stream, const LayerNormForwardArgs& args) {
  run_forward(stream, args.x,
              {Operand(args.x), Operand(args.residual), Operand(args.gamma), Operand(args.beta),
               Operand(args.residual_out), Operand(args.y), statistics(args.mean), statistics(args.rstd),
               static_cast<float>(args.eps), offset_of(args.zero_centered_gamma), true});
}

void rms_norm_backward(const CudaStream& stream, const RmsNormBackwardArgs& args) {
  run_backward(stream, args.x,
               {Operand(args.x), Operand(args.gamma), Operand(args.dy), Operand(args.dresidual), Operand(args.dx),
                nullptr, statistics(args.rstd), offset_of(args.zero_centered_gamma)},
               args.dgamma, {}, args.accumulate, args.workspace);
}

void layer_norm_backward(const CudaStream& stream, const LayerNormBackwardArgs& args) {
  run_backward(stream, args.x,
               {Operand(args.x), Operand(args.gamma), Operand(args.dy), Operand(args.dresidual), Operand(args.dx),
                statistics(args.mean), statistics(args.rstd), offset_of(args.zero_centered_gamma)},
               args.dgamma, args.dbeta, args.accumulate, args.workspace);
}

}  // namespace megatron::kernels
