// Splits Megatron's fused projection into queries, keys, values and the gates of attention's output.
#pragma once

#include "megatron/autograd/tape.h"

namespace megatron {

struct QueryKeyValue {
  Tensor query;       // [s, b, n, d]
  Tensor key, value;  // [s, b, g, d]
  Tensor gate = {};   // [s, b, n, d]; undefined without gates
};

/// The columns of the projection: each of the g groups has its queries, their gates if there are any, its key and its
/// value: [q .. q | gate .. gate | k | v].
struct MixedHeads {
  enum Part : int { kQuery, kKey, kValue, kGate };
  struct Range {
    int64_t first, count;
  };

  int64_t num_groups = 0, num_heads = 0;
  bool has_gates = false;

  int64_t num_parts() const { return has_gates ? 4 : 3; }
  int64_t heads_per_group() const { return num_heads / num_groups; }
  /// Heads of a group, those of all parts together.
  int64_t group_size() const { return heads_per_group() * (has_gates ? 2 : 1) + 2; }
  /// The heads of a part in each group.
  Range range(int part) const;
  /// Elements of a head. @throw ShapeError unless the columns are those of whole groups.
  int64_t head_size(const Tensor& mixed) const;
};

/// Says whether the parts get memory of their own, or are views, which keep the whole projection alive.
enum class QkvParts { kCopies, kViews };

/// @param mixed  [s, b, g * group_size * d], floating. Nothing is saved.
/// @param parts  kViews needs n = g and no gates. Gradients in the layout of the views
///               (AttentionOptions::packs_gradients) are used in place, others are copied.
QueryKeyValue split_qkv(Context& ctx, const Tensor& mixed, const MixedHeads& heads, QkvParts parts = QkvParts::kCopies);

/// Memory of the parts, [s, b, heads, d] each.
QueryKeyValue empty_parts(const Context& ctx, const Tensor& mixed, const MixedHeads& heads);

/// Query, key and value of a projection [s, b, n 3 d] with a head in each group, as views of it.
QueryKeyValue qkv_views(const Tensor& mixed, int64_t num_heads);

}  // namespace megatron
