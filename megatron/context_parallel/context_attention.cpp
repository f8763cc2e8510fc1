#include "megatron/context_parallel/context_attention.h"

#include "megatron/context_parallel/gather_sequence.h"
#include "megatron/context_parallel/ring_attention.h"
#include "megatron/context_parallel/shared_heads.h"

namespace megatron {

int64_t ContextAttention::num_head_ranks(CpCommType type, int64_t size, int64_t first_level) {
  if (type == CpCommType::kA2a) return size;
  return type == CpCommType::kA2aP2p ? first_level : 1;
}

ContextAttention::ContextAttention(CpCommType type, const ProcessGroup& group, const std::vector<ProcessGroup>& levels)
    : gathers_keys_(type == CpCommType::kAllGather), group_(group) {
  if (group.size() == 1) return;
  if (type == CpCommType::kA2a) heads_ = group;
  if (type == CpCommType::kP2p) ring_ = group;
  if (type != CpCommType::kA2aP2p) return;
  require<ConfigError>(levels.size() == 2,
                       "[ContextAttention] a2a+p2p of {} ranks needs two levels of groups, there are {}. Give "
                       "--hierarchical-context-parallel-sizes.",
                       group.size(), levels.size());
  heads_ = levels[0];
  ring_ = levels[1];
}

Tensor ContextAttention::forward(Context& ctx, const QueryKeyValue& x, const SequenceLayout& layout,
                                 AttentionOptions options, Parameter* sink) const {
  if (!is_shared()) return attention(ctx, x.query, x.key, x.value, layout, options, sink);
  options.packs_gradients = false;
  const ContextLayouts* context = layout.context();
  require(context && context->cut.size == group_.size(),
          "[ContextAttention] the layout of the tokens is not that of {} context-parallel ranks.", group_.size());
  if (gathers_keys_) {
    const Tensor key = gather_sequence(ctx, x.key, group_, context->cut);
    return attention(ctx, x.query, key, gather_sequence(ctx, x.value, group_, context->cut), layout, options, sink);
  }
  const RingLayouts& layouts = context->ring(heads_.size());
  const Tensor query = scatter_heads(ctx, x.query, heads_), key = scatter_heads(ctx, x.key, heads_),
               value = scatter_heads(ctx, x.value, heads_);
  const int64_t num_heads = query.size(2), own_heads = heads_.rank() * num_heads;
  options.first_head += own_heads;
  options.first_sink += own_heads;
  Tensor o = ring_.size() > 1 ? ring_attention(ctx, query, key, value, layouts, ring_, options)
                              : attention(ctx, query, key, value, layouts.steps.at(0).at(0), options, sink);
  if (heads_.size() == 1) return o;
  const Tensor rows = gather_heads(ctx, o.reshape({o.size(0), o.size(1), num_heads, o.size(2) / num_heads}), heads_);
  return rows.reshape({rows.size(0), rows.size(1), rows.size(2) * rows.size(3)});
}

}  // namespace megatron
