#include "megatron/transformer/dot_product_attention.h"

#include "megatron/autograd/recompute.h"
#include "megatron/transformer/moe/moe_step.h"
#include "megatron/transformer/qk_clip.h"

namespace megatron {
namespace {

kernels::AttentionSoftmax softmax_of(SoftmaxType type) {
  switch (type) {
    case SoftmaxType::kVanilla:
      return kernels::AttentionSoftmax::kVanilla;
    case SoftmaxType::kOffByOne:
      return kernels::AttentionSoftmax::kOffByOne;
    case SoftmaxType::kLearnable:
      return kernels::AttentionSoftmax::kLearnable;
  }
  throw InternalError("[DotProductAttention] unknown softmax type");
}

}  // namespace

int64_t num_heads_of_rank(const ModuleContext& context) {
  const int64_t num_heads = context.config.num_attention_heads, num_ranks = context.groups.tp.size();
  require<ConfigError>(
      num_heads % num_ranks == 0,
      "[SelfAttention] {} heads are not divisible by {} tensor-parallel ranks: each owns an equal part. "
      "Change --num-attention-heads or --tensor-model-parallel-size.",
      num_heads, num_ranks);
  return num_heads / num_ranks;
}

DotProductAttention::DotProductAttention(const ModuleContext& context, int64_t layer_number, double scale)
    : layer_number_(layer_number),
      num_heads_(context.config.num_attention_heads),
      is_recomputed_(context.config.recomputes(RecomputeModule::kCoreAttn)),
      offload_(context.config.offload_of(OffloadModule::kCoreAttn)),
      path_(context.path),
      context_(context.config.cp_comm_type_of(layer_number),
               {.cp = context.groups.cp, .levels = context.groups.hcp, .dynamic = context.groups.hybrid_dp_cp}) {
  const TransformerConfig& config = context.config;
  // Megatron's query-key layer scaling divides scores by the layer number and multiplies back inside the softmax; it
  // keeps fp16 scores finite. Scores are fp32 here, so it has nothing to do.
  options_.scale = scale;
  options_.soft_cap = config.attn_logit_softcapping.value_or(0);
  options_.softmax = softmax_of(config.softmax_type);
  options_.dropout = config.attention_dropout;
  options_.is_dropout_of_cudnn = config.cudnn_attention_dropout;
  options_.path = path_;
  options_.first_head = context.groups.tp.rank() * num_heads_of_rank(context);
  options_.is_deterministic = config.deterministic_mode;
  if (config.window_size && !config.sees_whole_sequence(layer_number)) {
    options_.window_left = config.window_size->first;
    options_.window_right = config.window_size->second;
  }
  if (config.softmax_type != SoftmaxType::kLearnable) return;
  const int64_t num_heads = config.num_attention_heads;
  ParameterOptions offset =
      context.parameter("softmax_offset", ShardSpec::cut_by({num_heads}, {.sections = {{num_heads}}}));
  offset.init_std = config.init_method_std;
  register_parameter(softmax_offset_, context.ctx, std::move(offset));
}

Tensor DotProductAttention::max_logits(const Context& ctx, const LayerInputs& inputs) const {
  if (!ctx.is_training() || !ctx.is_first_run() || inputs.mtp_depth > 0) return {};
  const Tensor all = step_tensor(inputs.step, kMaxAttentionLogits);
  return all.defined() ? all.slice(0, (layer_number_ - 1) * num_heads_, num_heads_) : all;
}

Tensor DotProductAttention::forward(Context& ctx, const Tensor& query, const Tensor& key, const Tensor& value,
                                    const LayerInputs& inputs, bool packs_gradients) const {
  const SequenceLayout& layout = inputs.layout;
  const OffloadScope scope(ctx, offload_);
  AttentionOptions options = options_;
  options.packs_gradients = packs_gradients;
  options.max_logits = max_logits(ctx, inputs);
  Parameter* sink = softmax_offset_.get();
  if (!is_recomputed_) return context_.forward(ctx, {query, key, value}, layout, options, sink);
  const auto function = [this, options, sink, layout](Context& c, const Payload& in) mutable {
    if (!c.is_first_run()) options.max_logits = {};
    return Payload{{"attention", context_.forward(c, {at(in, "q"), at(in, "k"), at(in, "v")}, layout, options, sink)}};
  };
  return at(recompute(ctx, {{"q", query}, {"k", key}, {"v", value}}, function), "attention");
}

}  // namespace megatron
