// Heads of multi-latent attention: one part of each query and key has no position, the other one rotates, and the part
// of the keys that rotates is shared by all heads. Source: DeepSeek-V2 (arXiv:2405.04434), section 2.1.
#pragma once

#include "megatron/ops/rope.h"

namespace megatron {

/// Elements of a head of multi-latent attention.
struct LatentHeadSizes {
  int64_t without_position = 0;  // of a query and a key
  int64_t rotated = 0;           // of a query and a key, after the part without position
  int64_t value = 0;

  int64_t query() const { return without_position + rotated; }
};

/// Queries with the second part of each head rotated.
/// @param x  [s, b, n * sizes.query()]: per head the part without position, then the one that rotates. Nothing is
///           saved.
/// @return   [s, b, n, sizes.query()]
Tensor latent_query(Context& ctx, const Tensor& x, const LatentHeadSizes& sizes, const RopeTable& table,
                    const SequenceLayout& layout);

struct KeyValue {
  Tensor key;    // [s, b, n, sizes.query()]
  Tensor value;  // [s, b, n, sizes.value]
};
/// Keys of a part of their own and the rotated part that all heads share, and values.
/// @param x       [s, b, n * (sizes.without_position + sizes.value)]: per head key, then value.
/// @param shared  [s, b, sizes.rotated]: before its rotation; its gradient is the sum over the heads.
/// Nothing is saved.
KeyValue latent_key_value(Context& ctx, const Tensor& x, const Tensor& shared, const LatentHeadSizes& sizes,
                          const RopeTable& table, const SequenceLayout& layout);

}  // namespace megatron
