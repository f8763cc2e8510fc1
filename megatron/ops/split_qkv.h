// Splits Megatron's fused projection into queries, keys and values.
#pragma once

#include "megatron/autograd/tape.h"

namespace megatron {

struct QueryKeyValue {
  Tensor query;       // [s, b, n, d]
  Tensor key, value;  // [s, b, g, d]
};

/// @throw ShapeError unless the columns are those of whole groups.
void require_groups(const Tensor& mixed, int64_t num_groups, int64_t num_heads);

/// Whether the parts get memory of their own, or are views, which keep the whole projection alive.
enum class QkvParts { kCopies, kViews };

/// Each of the g groups of the last dimension holds its queries, its key and its value: [q .. q | k | v].
/// @param mixed  [s, b, g (n/g + 2) d], floating. Nothing is saved.
/// @param parts  kViews needs n = g. Gradients in the layout of the views (AttentionOptions::packs_gradients) are used
///               in place, others are copied.
QueryKeyValue split_qkv(Context& ctx, const Tensor& mixed, int64_t num_groups, int64_t num_heads,
                        QkvParts parts = QkvParts::kCopies);

/// Query, key and value of a projection [s, b, n 3 d] with a head in each group, as views of it.
QueryKeyValue qkv_views(const Tensor& mixed, int64_t num_heads);

}  // namespace megatron
