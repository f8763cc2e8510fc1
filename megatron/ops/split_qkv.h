// Queries, keys and values out of Megatron's fused projection.
#pragma once

#include "megatron/autograd/tape.h"

namespace megatron {

struct QueryKeyValue {
  Tensor query;       // [s, b, n, d]
  Tensor key, value;  // [s, b, g, d]
};

/// Each of the g groups of the last dimension holds its queries, its key and its value: [q .. q | k | v].
/// @param mixed  [s, b, g (n/g + 2) d], floating. Nothing is saved.
QueryKeyValue split_qkv(Context& ctx, const Tensor& mixed, int64_t num_groups, int64_t num_heads);

}  // namespace megatron
