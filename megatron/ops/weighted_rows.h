// Rows that count with the probability of their expert.
#pragma once

#include "megatron/autograd/tape.h"

namespace megatron {

/// y[r] = weights[r] * x[r]. @param x [m, h]. @param weights [m], floating.
Tensor scale_rows(Context& ctx, const Tensor& x, const Tensor& weights);

}  // namespace megatron
