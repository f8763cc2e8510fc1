// The logits of a router: a linear layer with few outputs, in more precision than its operands have.
#pragma once

#include "megatron/autograd/tape.h"

namespace megatron {

/// logits[t, e] = x w^T + bias, computed in `dtype` whatever the dtype of x and w, and so is the gradient.
/// @param x [..., h]; a row of it is a token. @param dtype float32 or float64. @param bias [e]; may be null.
Tensor router_logits(Context& ctx, const Tensor& x, Parameter& weight, Parameter* bias, DType dtype);

}  // namespace megatron
