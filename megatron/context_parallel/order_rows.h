// Rows of several ranks between the order of the ranks and that of their positions.
#pragma once

#include "megatron/autograd/tape.h"
#include "megatron/core/context_layouts.h"

namespace megatron {

/// @param x  [s, b, ...], the rows of the ranks one after the other, contiguous. @return [s, b, ...]
Tensor order_by_positions(Context& ctx, const Tensor& x, const RowOrder& order);
/// The inverse.
Tensor order_by_ranks(Context& ctx, const Tensor& x, const RowOrder& order);

}  // namespace megatron
