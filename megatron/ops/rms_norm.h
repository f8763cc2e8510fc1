// Root mean square normalisation with its gradient.
#pragma once

#include "megatron/ops/layer_norm.h"

namespace megatron {

/// y = x / sqrt(mean(x^2) + eps) * gamma over the last dimension (arXiv:1910.07467, eq. 4).
/// @param x      [..., h], floating; read, and saved with the reciprocal deviation [rows].
/// @param gamma  [h]; null: no factor (Megatron's L2Norm). B computes its gradient too.
/// @return       shape of x, dtype of gamma if there is one, else of x.
Tensor rms_norm(Context& ctx, const Tensor& x, Parameter* gamma, const NormOptions& options);

}  // namespace megatron
