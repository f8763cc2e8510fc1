// A soft cap of logits.
#pragma once

#include "megatron/autograd/tape.h"

namespace megatron {

/// y = cap * tanh(x / cap), between -cap and cap, as Gemma 2 bounds its logits (arXiv:2408.00118, section 2).
/// @param x    [..., n], floating; read.
/// @param cap  above 0.
/// @return y   the shape and dtype of x. Saved for backward: y, which the loss reads too.
/// @throw ConfigError if the cap is not above 0.
Tensor soft_cap(Context& ctx, const Tensor& x, double cap);

}  // namespace megatron
