#include "megatron/context_parallel/context_attention.h"

#include <algorithm>

#include "megatron/context_parallel/order_rows.h"
#include "megatron/context_parallel/ring_attention.h"
#include "megatron/context_parallel/shared_heads.h"
#include "megatron/tensor_parallel/row_exchange.h"

namespace megatron {

int64_t ContextAttention::num_head_ranks(CpCommType type, int64_t size, int64_t first_level) {
  if (type == CpCommType::kA2a) return size;
  return type == CpCommType::kA2aP2p ? first_level : 1;
}

const ProcessGroup& ContextGroups::of_size(int64_t size) const {
  if (cp.size() == size) return cp;
  const auto found = std::ranges::find(dynamic, size, [](const ProcessGroup& group) { return int64_t{group.size()}; });
  require(found != dynamic.end(), "[ContextAttention] there is no group of {} ranks, which share a layout's sequences.",
          size);
  return *found;
}

ContextAttention::ContextAttention(CpCommType type, const ContextGroups& groups) : type_(type), groups_(groups) {
  require<ConfigError>(type != CpCommType::kA2aP2p || groups.cp.size() == 1 || groups.levels.size() == 2,
                       "[ContextAttention] a2a+p2p of {} ranks needs two levels of groups, there are {}. Give "
                       "--hierarchical-context-parallel-sizes.",
                       groups.cp.size(), groups.levels.size());
}

Tensor ContextAttention::forward(Context& ctx, const QueryKeyValue& x, const SequenceLayout& layout,
                                 AttentionOptions options, Parameter* sink) const {
  const ContextLayouts* context = layout.context();
  require(context || groups_.cp.size() == 1 || !groups_.dynamic.empty(),
          "[ContextAttention] the layout of the tokens is not that of {} context-parallel ranks.", groups_.cp.size());
  if (!context) return attention(ctx, x.query, x.key, x.value, layout, options, sink);
  options.packs_gradients = false;
  const ProcessGroup& group = groups_.of_size(context->cut.size);
  if (type_ == CpCommType::kAllGather) {
    const auto of_all_ranks = [&](const Tensor& own) {
      return order_by_positions(ctx, exchange_rows(ctx, own, group, RowExchange::kGather), context->all_ranks);
    };
    const Tensor key = of_all_ranks(x.key), value = of_all_ranks(x.value);
    const bool is_one_call = options.softmax != kernels::AttentionSoftmax::kVanilla || options.is_dropout_of_cudnn;
    return is_one_call ? attention(ctx, x.query, key, value, layout, options, sink)
                       : attention_in_parts(ctx, x.query, key, value, context->all_keys, options);
  }
  const bool has_levels = type_ == CpCommType::kA2aP2p;
  const ProcessGroup heads = has_levels ? groups_.levels[0] : type_ == CpCommType::kA2a ? group : ProcessGroup();
  const ProcessGroup ring = has_levels ? groups_.levels[1] : type_ == CpCommType::kP2p ? group : ProcessGroup();
  const RingLayouts& layouts = context->ring(heads.size());
  const auto of_own_heads = [&](const Tensor& all) { return scatter_heads(ctx, all, heads, layouts.head_ranks); };
  const Tensor query = of_own_heads(x.query), key = of_own_heads(x.key), value = of_own_heads(x.value);
  const int64_t num_heads = query.size(2), own_heads = heads.rank() * num_heads;
  options.first_head += own_heads;
  options.first_sink += own_heads;
  Tensor o = ring.size() > 1 ? ring_attention(ctx, query, key, value, layouts, ring, options)
                             : attention(ctx, query, key, value, layouts.steps.at(0).at(0), options, sink);
  if (heads.size() == 1) return o;
  const Tensor rows =
      gather_heads(ctx, o.reshape({o.size(0), o.size(1), num_heads, o.size(2) / num_heads}), heads, layouts.head_ranks);
  return rows.reshape({rows.size(0), rows.size(1), rows.size(2) * rows.size(3)});
}

}  // namespace megatron
