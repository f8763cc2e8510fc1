// Sums, multiples and casts.
#pragma once

#include "megatron/autograd/tape.h"

namespace megatron {

/// a + b of equal shapes and dtypes, both unbounded or bounded by one count. @throw ShapeError for any other operands.
Tensor add(Context& ctx, const Tensor& a, const Tensor& b);
/// factor * x; x itself if the factor is 1.
Tensor scale(Context& ctx, const Tensor& x, double factor);
/// x in another floating dtype; x itself if it has it. The gradient is cast back.
Tensor cast(Context& ctx, const Tensor& x, DType dtype);

}  // namespace megatron
