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

/// f(pack of z, n) for the packs of a thread. The first one stays in registers; others are read again each time.
template <class F>
__device__ void for_packs(const Operand& z, int64_t row, int64_t columns, const Pack& first, F f) {
  for (int64_t begin = threadIdx.x * kPack; begin < columns; begin += blockDim.x * kPack) {
    const int n = pack_size(columns, begin);
    f(begin, n, begin == threadIdx.x * kPack ? first : load(z, row, begin, n));
  }
}

/// Sums x + residual of the thread's packs where there is a residual; returns the first pack of z.
__device__ Pack add_residual(const Forward& args, int64_t row, int64_t columns) {
  Pack first = {};
  for (int64_t begin = threadIdx.x * kPack; begin < columns; begin += blockDim.x * kPack) {
    const int n = pack_size(columns, begin);
    const RawPack raw = load_raw(args.x, row, begin, n);
    Pack z;
    if (args.residual) {
      const RawPack other_raw = load_raw(args.residual, row, begin, n);
      const Pack a = convert(raw), b = convert(other_raw);
#pragma unroll
      for (int e = 0; e < kPack; ++e) z.v[e] = round_to(args.residual_out.dtype, a.v[e] + b.v[e]);
      store(args.residual_out, row, begin, n, z);
    } else {
      z = convert(raw);
    }
    if (begin == threadIdx.x * kPack) first = z;
    if (!args.residual) break;
  }
  return first;
}

__global__ void __launch_bounds__(kMaxRowThreads) norm_forward_kernel(Extent extent, Forward args) {
  const int64_t row = row_of_block(), columns = row < extent.true_rows() ? extent.columns : 0;
  const Operand& z_rows = args.residual ? args.residual_out : args.x;
  const Pack first = add_residual(args, row, columns);
  float mean = 0;
  if (args.is_layer) {
    float sum = 0;
    for_packs(z_rows, row, columns, first, [&](int64_t, int, const Pack& z) {
      for (int e = 0; e < kPack; ++e) sum += z.v[e];
    });
    mean = reduce_row(sum, Plus()) / static_cast<float>(extent.columns);
  }
  float squares = 0;
  for_packs(z_rows, row, columns, first, [&](int64_t, int n, const Pack& z) {
#pragma unroll
    for (int e = 0; e < kPack; ++e) squares += e < n ? (z.v[e] - mean) * (z.v[e] - mean) : 0;
  });
  const float rstd = 1 / sqrtf(reduce_row(squares, Plus()) / static_cast<float>(extent.columns) + args.eps);
  for_packs(z_rows, row, columns, first, [&](int64_t begin, int n, const Pack& z) {
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

__device__ void load_both(const Backward& args, int64_t row, int64_t begin, int n, Pack& z, Pack& dy) {
  const RawPack z_raw = load_raw(args.z, row, begin, n), dy_raw = load_raw(args.dy, row, begin, n);
  z = convert(z_raw);
  dy = convert(dy_raw);
}

__global__ void __launch_bounds__(kMaxRowThreads) norm_backward_kernel(Extent extent, Backward args) {
  const int64_t row = row_of_block(), columns = row < extent.true_rows() ? extent.columns : 0;
  Pack first_xhat = {}, first_g = {};
  float sum_g = 0, sum_g_xhat = 0;
  for (int64_t begin = threadIdx.x * kPack; begin < columns; begin += blockDim.x * kPack) {
    const int n = pack_size(columns, begin);
    Pack xhat, g;
    load_both(args, row, begin, n, xhat, g);
    args.derive(xhat, g, row, begin, n);
#pragma unroll
    for (int e = 0; e < kPack; ++e) {
      sum_g += g.v[e];
      sum_g_xhat += g.v[e] * xhat.v[e];
    }
    if (begin == threadIdx.x * kPack) first_xhat = xhat, first_g = g;
  }
  const float share = 1 / static_cast<float>(extent.columns);
  const float mean_g = args.mean ? reduce_row(sum_g, Plus()) * share : 0;
  const float mean_g_xhat = reduce_row(sum_g_xhat, Plus()) * share;
  for (int64_t begin = threadIdx.x * kPack; begin < columns; begin += blockDim.x * kPack) {
    const int n = pack_size(columns, begin);
    Pack xhat = first_xhat, g = first_g, dx;
    if (begin != threadIdx.x * kPack) {
      load_both(args, row, begin, n, xhat, g);
      args.derive(xhat, g, row, begin, n);
    }
    const Pack other = args.dresidual ? load(args.dresidual, row, begin, n) : Pack{};
    const float rstd = args.rstd[row];
#pragma unroll
    for (int e = 0; e < kPack; ++e) dx.v[e] = (g.v[e] - mean_g - xhat.v[e] * mean_g_xhat) * rstd + other.v[e];
    store(args.dx, row, begin, n, dx);
  }
}

/// Sums over rows of dy * xhat, or of dy.
template <bool kOfXhat>
struct WeightGradient {
  Backward args;
  __device__ void operator()(int64_t row, int64_t begin, int n, float (*sums)[kPack]) const {
    if constexpr (kOfXhat) {
      Pack z, dy;
      load_both(args, row, begin, n, z, dy);
      const float mean = args.mean_of(row), rstd = args.rstd[row];
#pragma unroll
      for (int e = 0; e < kPack; ++e) sums[0][e] += dy.v[e] * ((z.v[e] - mean) * rstd);
    } else {
      const Pack dy = load(args.dy, row, begin, n);
#pragma unroll
      for (int e = 0; e < kPack; ++e) sums[0][e] += dy.v[e];
    }
  }
};

void run_forward(const CudaStream& stream, const ConstView& x, const Forward& args) {
  const Extent extent(x);
  if (extent.is_empty()) return;
  const RowBlock block(extent.columns);
  norm_forward_kernel<<<block.blocks(extent.rows), block.threads(), 0, stream.stream>>>(extent, args);
  check_launch("norm_forward");
}

/// The weights' gradients first: dx may be dy.
void run_backward(const CudaStream& stream, const ConstView& x, const Backward& args, const View& dgamma,
                  const View& dbeta, bool accumulate, const View& workspace) {
  const Extent extent(x);
  if (dgamma.defined())
    sum_columns<1>(stream, "norm_backward", extent, workspace, &dgamma, accumulate, WeightGradient<true>{args});
  if (dbeta.defined())
    sum_columns<1>(stream, "norm_backward", extent, workspace, &dbeta, accumulate, WeightGradient<false>{args});
  if (extent.is_empty() || !args.dx) return;
  const RowBlock block(extent.columns);
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
