// Layer normalisation over the last dimension.
// The overloads for CUDA take fp32, bf16 and fp16, and throw NotSupported for fp64.
#pragma once

#include "megatron/core/cuda_stream.h"
#include "megatron/core/view.h"
#include "megatron/kernels/column_sum.h"

namespace megatron::kernels {

/// z = x + residual, rounded to the dtype of residual_out;  y = (z - mean) * rstd * gamma + beta,
/// rstd = 1 / sqrt(variance + eps), the variance being that of the row (divided by h).
/// Source: Ba, Kiros and Hinton 2016 (arXiv:1607.06450). Any floating dtypes, which may differ (fp64 only together);
/// statistics in fp32 (fp64 for fp64), the variance from differences to the mean. Rows are all dimensions but the last,
/// with any strides; the last dimension is contiguous.
struct LayerNormForwardArgs {
  ConstView x;         // [..., h]
  ConstView residual;  // shape of x; optional
  ConstView gamma;     // [h]; optional
  ConstView beta;      // [h]; optional
  View residual_out;   // shape of x, defined if and only if residual is; may be x or residual
  View y;              // shape of x; may be x without a residual
  View mean, rstd;     // [rows] fp32 (fp64 for fp64), contiguous; optional
  double eps = 1e-5;
  bool zero_centered_gamma = false;  // the factor is 1 + gamma (Megatron's "layernorm 1p"); beta as it is
};
void layer_norm_forward(const CpuStream& stream, const LayerNormForwardArgs& args);
void layer_norm_forward(const CudaStream& stream, const LayerNormForwardArgs& args);

/// dx = gradient of z through y, plus dresidual;  dgamma = sum over rows of dy * (z - mean) * rstd;
/// dbeta = sum over rows of dy. With a residual, dx is also the gradient of the residual.
struct LayerNormBackwardArgs {
  ConstView x;              // [..., h] z, the normalised tensor
  ConstView gamma;          // [h]; optional as in forward
  ConstView mean, rstd;     // [rows] from forward
  ConstView dy;             // shape of x
  ConstView dresidual;      // shape of x; gradient of z (residual_out) from other consumers; optional
  View dx;                  // shape of x; may be dy or dresidual
  View dgamma, dbeta;       // [h]; optional
  bool accumulate = false;  // dgamma, dbeta += instead of =
  bool zero_centered_gamma = false;
  View workspace;  // uint8; needed with dgamma or dbeta
};
void layer_norm_backward(const CpuStream& stream, const LayerNormBackwardArgs& args);
void layer_norm_backward(const CudaStream& stream, const LayerNormBackwardArgs& args);

constexpr int64_t layer_norm_backward_workspace_bytes(int64_t num_rows, int64_t h, DType dtype) {
  return column_sum_workspace_bytes(num_rows, 2 * h, dtype);
}

}  // namespace megatron::kernels
