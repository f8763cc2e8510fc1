// Layer normalisation with its gradient.
#pragma once

#include "megatron/autograd/tape.h"

namespace megatron {

struct NormOptions {
  double eps = 1e-5;
  bool zero_centered_gamma = false;  // the stored weight is gamma - 1
};

/// y = (x - mean) / sqrt(variance + eps) * gamma + beta over the last dimension (arXiv:1607.06450).
/// @param x      [..., h], floating; read, and saved with mean and reciprocal deviation [rows].
/// @param gamma  [h]; @param beta [h]; may be frozen. B computes their gradients too.
/// @return       shape of x, dtype of gamma: the norm of an fp32 residual stream has the dtype of the model.
Tensor layer_norm(Context& ctx, const Tensor& x, Parameter& gamma, Parameter& beta, const NormOptions& options);

}  // namespace megatron
