#include "megatron/transformer/self_attention.h"

#include <algorithm>
#include <cmath>

#include "megatron/autograd/recompute.h"
#include "megatron/ops/rms_norm.h"

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
  throw InternalError("[SelfAttention] unknown softmax type");
}

/// Rows of the fused projection: per group its queries, its key, its value.
ShardCut qkv_rows(const TransformerConfig& config) {
  const int64_t d = config.kv_channels, heads_per_group = config.num_attention_heads / config.num_query_groups;
  return {.num_groups = config.num_query_groups, .sections = {{heads_per_group * d, false}, {d, true}, {d, true}}};
}

}  // namespace

SelfAttention::SelfAttention(const ModuleContext& context, int64_t layer_number)
    : head_size_(context.config.kv_channels),
      dtype_(context.config.params_dtype),
      qk_l2_norm_(context.config.qk_l2_norm),
      uses_rope_(!context.config.skips_rope(layer_number)),
      recomputes_core_(context.config.recomputes(RecomputeModule::kCoreAttn)),
      epsilon_(context.config.layernorm_epsilon),
      path_(context.path + ".core_attention") {
  const TransformerConfig& config = context.config;
  const int64_t num_ranks = context.groups.tp.size(), d = config.kv_channels;
  require<ConfigError>(
      config.num_attention_heads % num_ranks == 0,
      "[SelfAttention] {} heads are not divisible by {} tensor-parallel ranks: each owns an equal part. "
      "Change --num-attention-heads or --tensor-model-parallel-size.",
      config.num_attention_heads, num_ranks);
  require<NotSupported>(!config.attention_output_gate,
                        "[SelfAttention] this version has no gate on the output of attention. Leave out "
                        "attention_output_gate.");
  num_heads_ = config.num_attention_heads / num_ranks;
  num_groups_ = std::max<int64_t>(1, config.num_query_groups / num_ranks);  // neighbours may share one
  // Megatron's query-key layer scaling divides scores by the layer number and multiplies back inside the softmax; it
  // keeps fp16 scores finite. Scores are fp32 here, so it has nothing to do.
  options_.scale = config.softmax_scale.value_or(1 / std::sqrt(static_cast<double>(d)));
  options_.softmax = softmax_of(config.softmax_type);
  options_.dropout = config.attention_dropout;
  options_.is_dropout_of_cudnn = config.cudnn_attention_dropout;
  options_.path = path_;
  options_.first_head = context.groups.tp.rank() * num_heads_;
  options_.is_deterministic = config.deterministic_mode;
  if (config.window_size && !config.sees_whole_sequence(layer_number)) {
    options_.window_left = config.window_size->first;
    options_.window_right = config.window_size->second;
  }
  if (config.softmax_type == SoftmaxType::kLearnable) {
    ParameterOptions offset =
        context.at("core_attention")
            .parameter("softmax_offset",
                       ShardSpec::cut_by({config.num_attention_heads}, {.sections = {{config.num_attention_heads}}}));
    offset.init_std = config.init_method_std;
    register_parameter(softmax_offset_, context.ctx, std::move(offset));
  }
  ParallelLinearOptions linear;
  linear.name = context.path + ".linear_proj";
  linear.stored = context.at("linear_proj").stored;
  linear.input_size = config.num_attention_heads * d;
  linear.output = {.sections = {{config.hidden_size, false}}};
  linear.bias = config.add_bias_linear;
  linear.dtype = config.params_dtype;
  linear.init_std = context.output_init_std();
  linear.sequence_parallel = context.sequence_parallel;
  linear.overlap = context.overlap;
  register_module(linear_proj_, std::make_unique<RowParallelLinear>(context.ctx, linear, context.groups.tp));
  linear.name = context.path + ".linear_qkv";
  linear.stored = context.at("linear_qkv").stored;
  linear.input_size = config.hidden_size;
  linear.output = qkv_rows(config);
  linear.bias = config.add_bias_linear || config.add_qkv_bias;
  linear.init_std = config.init_method_std;
  register_module(linear_qkv_, std::make_unique<ColumnParallelLinear>(context.ctx, linear, context.groups.tp));
  if (!config.qk_layernorm) return;
  register_module(q_layernorm_, std::make_unique<Norm>(context.at("q_layernorm"), d, NormPlace::kAttentionHeads));
  register_module(k_layernorm_, std::make_unique<Norm>(context.at("k_layernorm"), d, NormPlace::kAttentionHeads));
}

std::unique_ptr<KeyValueCache> SelfAttention::make_state(const Context& ctx, const LayerStateSizes& sizes) const {
  return std::make_unique<KeyValueCache>(ctx, Shape{sizes.max_rows, sizes.b, num_groups_, head_size_}, dtype_);
}

Tensor SelfAttention::normalized(Context& ctx, const Tensor& heads, const Norm* norm) const {
  if (norm) return norm->forward(ctx, heads);
  return qk_l2_norm_ ? rms_norm(ctx, heads, nullptr, {.eps = epsilon_}) : heads;
}

QueryKeyValue SelfAttention::heads_of(Context& ctx, const Tensor& mixed, const LayerInputs& inputs,
                                      bool are_direct) const {
  const bool has_norms = q_layernorm_ || qk_l2_norm_, is_rotated = inputs.rope && uses_rope_;
  if (is_rotated && !has_norms)
    return split_rotated_qkv(ctx, mixed, num_groups_, num_heads_, *inputs.rope, inputs.layout);
  QueryKeyValue x = split_qkv(ctx, mixed, num_groups_, num_heads_, are_direct ? QkvParts::kViews : QkvParts::kCopies);
  x.query = normalized(ctx, x.query, q_layernorm_.get());
  x.key = normalized(ctx, x.key, k_layernorm_.get());
  if (is_rotated) {
    x.query = rope(ctx, x.query, *inputs.rope, inputs.layout);
    x.key = rope(ctx, x.key, *inputs.rope, inputs.layout);
  }
  return x;
}

BlockOutput SelfAttention::forward(Context& ctx, const Tensor& x, const LayerInputs& inputs) const {
  // Copies where something stands between the projection and attention: views would keep all of it alive for them.
  const bool are_direct =
      num_heads_ == num_groups_ && !q_layernorm_ && !qk_l2_norm_ && !(inputs.rope && uses_rope_) && !inputs.state;
  QueryKeyValue heads = heads_of(ctx, linear_qkv_->forward(ctx, x), inputs, are_direct);
  if (inputs.state) {
    KeyValueCache::Filled filled = state_as<KeyValueCache>(*inputs.state).append(ctx, heads.key, heads.value);
    heads.key = std::move(filled.key);
    heads.value = std::move(filled.value);
  }
  return {linear_proj_->forward(ctx, core_attention(ctx, heads, inputs, are_direct)), linear_proj_->bias()};
}

Tensor SelfAttention::core_attention(Context& ctx, const QueryKeyValue& x, const LayerInputs& inputs,
                                     bool packs_gradients) const {
  AttentionOptions options = options_;
  options.packs_gradients = packs_gradients;
  Parameter* sink = softmax_offset_.get();
  if (!recomputes_core_) return attention(ctx, x.query, x.key, x.value, inputs.layout, options, sink);
  const auto function = [options, sink, layout = inputs.layout](Context& c, const Payload& in) {
    return Payload{{"attention", attention(c, at(in, "q"), at(in, "k"), at(in, "v"), layout, options, sink)}};
  };
  return at(recompute(ctx, {{"q", x.query}, {"k", x.key}, {"v", x.value}}, function), "attention");
}

}  // namespace megatron
