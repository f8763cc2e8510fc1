// Root mean square normalisation over the last dimension.
// The overloads for CUDA take fp32, bf16 and fp16, and throw NotSupported for fp64.
#pragma once

#include "megatron/core/cuda_stream.h"
#include "megatron/core/view.h"
#include "megatron/kernels/column_sum.h"

namespace megatron::kernels {

/// z = x + residual, rounded to the dtype of residual_out;  y = z * rstd * gamma,  rstd = 1 / sqrt(mean(z^2) + eps).
/// Source: Zhang and Sennrich 2019 (arXiv:1910.07467), eq. 4. Any floating dtypes, which may differ (fp64 only
/// together); statistics in fp32 (fp64 for fp64). Rows are all dimensions but the last, with any strides, so per-head
/// norms of [s, b, n, d] slices need no copy; the last dimension is contiguous.
struct RmsNormForwardArgs {
  ConstView x;         // [..., h]
  ConstView residual;  // shape of x; optional
  ConstView gamma;     // [h]; undefined: no factor (L2 norm)
  View residual_out;   // shape of x, defined if and only if residual is; may be x or residual
  View y;              // shape of x; may be x without a residual
  View rstd;           // [rows] fp32 (fp64 for fp64), contiguous; optional
  double eps = 1e-5;
  bool zero_centered_gamma = false;  // the factor is 1 + gamma (Megatron's "layernorm 1p")
};
void rms_norm_forward(const CpuStream& stream, const RmsNormForwardArgs& args);
void rms_norm_forward(const CudaStream& stream, const RmsNormForwardArgs& args);

/// dx = gradient of z through y, plus dresidual;  dgamma = sum over rows of dy * z * rstd.
/// With a residual, dx is also the gradient of the residual.
struct RmsNormBackwardArgs {
  ConstView x;              // [..., h] z, the normalised tensor
  ConstView gamma;          // [h]; optional as in forward
  ConstView rstd;           // [rows] from forward
  ConstView dy;             // shape of x
  ConstView dresidual;      // shape of x; gradient of z (residual_out) from other consumers; optional
  View dx;                  // shape of x; may be dy or dresidual
  View dgamma;              // [h]; optional
  bool accumulate = false;  // dgamma += instead of =
  bool zero_centered_gamma = false;
  View workspace;  // uint8; needed with dgamma
};
void rms_norm_backward(const CpuStream& stream, const RmsNormBackwardArgs& args);
void rms_norm_backward(const CudaStream& stream, const RmsNormBackwardArgs& args);

constexpr int64_t rms_norm_backward_workspace_bytes(int64_t num_rows, int64_t h, DType dtype) {
  return column_sum_workspace_bytes(num_rows, h, dtype);
}

}  // namespace megatron::kernels
