// Tensors beside each other in one: parts of the last dimension.
#pragma once

#include "megatron/autograd/tape.h"

namespace megatron {

/// Both parts of the last dimension, as tensors of their own.
struct ColumnParts {
  Tensor first;   // [..., num_first]
  Tensor second;  // [..., n - num_first]
};
/// @param x  [..., n], floating. Nothing is saved.
/// @throw ShapeError unless both parts have columns.
ColumnParts split_columns(Context& ctx, const Tensor& x, int64_t num_first);

/// The columns [begin, begin + count) of the last dimension as a tensor of their own; x itself if these are all.
/// @param x  [..., n], of any dtype; integers have no gradient. Nothing is saved.
/// @throw ShapeError unless x has these columns.
Tensor slice_columns(Context& ctx, const Tensor& x, int64_t begin, int64_t count);

/// The inverse of split_columns: [..., n + m] of [..., n] and [..., m]. Nothing is saved.
/// @throw ShapeError unless the other dimensions are equal.
Tensor join_columns(Context& ctx, const Tensor& first, const Tensor& second);

}  // namespace megatron
