// Linear layers of groups of rows: each group has a weight and a bias of its own.
#pragma once

#include "megatron/autograd/tape.h"
#include "megatron/core/row_groups.h"

namespace megatron {

/// y[r] = x[r] w[g]^T for the rows r of group g.
/// @param x       [capacity, i], floating; saved where the weight is trainable.
/// @param weight  [groups, o, i], dtype of x.
/// @return        [capacity, o], bounded as x. dx belongs to B, dw to W.
Tensor grouped_linear(Context& ctx, const Tensor& x, const RowGroups& groups, Parameter& weight);

/// y[r] = x[r] + weights[r] * bias[g] for the rows r of group g.
/// @param bias     [groups, n], or [n] for one group; its gradient falls out of B.
/// @param weights  [capacity]; undefined: 1.
Tensor grouped_bias(Context& ctx, const Tensor& x, const RowGroups& groups, Parameter& bias, const Tensor& weights);

}  // namespace megatron
