#include "megatron/transformer/self_attention.h"

#include <algorithm>
#include <cmath>

#include "megatron/ops/activation.h"
#include "megatron/ops/rms_norm.h"
#include "megatron/tensor_parallel/mappings.h"
#include "megatron/transformer/key_value_cache.h"

namespace megatron {
namespace {

/// Rows of the fused projection: per group its queries, their gates if there are any, its key, its value.
ShardCut qkv_rows(const TransformerConfig& config) {
  const int64_t d = config.kv_channels, heads_per_group = config.num_attention_heads / config.num_query_groups;
  ShardCut cut{.num_groups = config.num_query_groups, .sections = {{heads_per_group * d, false}}};
  if (config.attention_output_gate) cut.sections.push_back({heads_per_group * d, false});
  cut.sections.insert(cut.sections.end(), {{d, true}, {d, true}});
  return cut;
}

}  // namespace

SelfAttention::SelfAttention(const ModuleContext& context, int64_t layer_number)
    : num_heads_(num_heads_of_rank(context)),
      head_size_(context.config.kv_channels),
      first_head_(context.groups.tp.rank() * num_heads_),
      heads_per_group_(context.config.num_attention_heads / context.config.num_query_groups),
      dtype_(context.config.params_dtype),
      has_gate_(context.config.attention_output_gate),
      qk_l2_norm_(context.config.qk_l2_norm),
      uses_rope_(!context.config.skips_rope(layer_number)),
      norms_across_heads_(context.config.qk_layernorm_across_heads),
      tensor_group_(context.groups.tp),
      epsilon_(context.config.layernorm_epsilon),
      offload_of_qkv_linear_(context.config.offload_of(OffloadModule::kQkvLinear)),
      offload_of_attn_proj_(context.config.offload_of(OffloadModule::kAttnProj)) {
  const TransformerConfig& config = context.config;
  const int64_t d = config.kv_channels;
  num_groups_ = std::max<int64_t>(1, config.num_query_groups / context.groups.tp.size());  // neighbours may share one
  register_module(core_attention_, std::make_unique<DotProductAttention>(
                                       context.at("core_attention"), layer_number,
                                       config.softmax_scale.value_or(1 / std::sqrt(static_cast<double>(d)))));
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
  require<ConfigError>(!norms_across_heads_ || config.num_query_groups % context.groups.tp.size() == 0,
                       "[SelfAttention] {} key heads are not divisible by {} tensor-parallel ranks: their norm across "
                       "heads needs each of them once. Change --num-query-groups or --tensor-model-parallel-size.",
                       config.num_query_groups, context.groups.tp.size());
  const auto add_norm = [&](std::unique_ptr<Norm>& slot, std::string_view name, int64_t num_heads) {
    const NormPlace place = norms_across_heads_ ? NormPlace::kAllHeads : NormPlace::kAttentionHeads;
    register_module(slot, std::make_unique<Norm>(context.at(name), norms_across_heads_ ? num_heads * d : d, place));
  };
  add_norm(q_layernorm_, "q_layernorm", config.num_attention_heads);
  add_norm(k_layernorm_, "k_layernorm", config.num_query_groups);
}

std::unique_ptr<LayerState> SelfAttention::make_state(const Context& ctx, const LayerStateSizes& sizes) const {
  const Shape shape{sizes.max_rows, sizes.b, num_groups_, head_size_};
  return std::make_unique<KeyValueCache>(ctx, shape, shape, dtype_);
}

std::vector<ScaledRows> SelfAttention::clipped_rows(std::span<const double> max_logits, const QkClip& clip) const {
  const MixedHeads heads = mixed_heads();
  std::vector<ScaledRows> rows;
  for (int64_t group = 0; group < num_groups_; ++group) {
    const int64_t first_of_rank = first_head_ + group * heads.heads_per_group();
    const int64_t first_of_group = first_of_rank / heads_per_group_ * heads_per_group_;  // other ranks may have it
    const double factor = clip.logit_factor(std::ranges::max(
        max_logits.subspan(static_cast<size_t>(first_of_group), static_cast<size_t>(heads_per_group_))));
    if (factor == 1) continue;
    const auto add = [&](MixedHeads::Part part, double factor_of_part) {
      const auto [first, count] = heads.range(part);
      const int64_t begin = (group * heads.group_size() + first) * head_size_;
      rows.push_back({&linear_qkv_->weight(), begin, begin + count * head_size_, factor_of_part});
    };
    add(MixedHeads::kQuery, clip.query_factor(factor));
    add(MixedHeads::kKey, clip.key_factor(factor));
  }
  return rows;
}

Tensor SelfAttention::normalized(Context& ctx, const Tensor& heads, const Norm* norm) const {
  if (norm) return norms_across_heads_ ? normalized_across_heads(ctx, heads, *norm) : norm->forward(ctx, heads);
  return qk_l2_norm_ ? rms_norm(ctx, heads, nullptr, {.eps = epsilon_}) : heads;
}

Tensor SelfAttention::normalized_across_heads(Context& ctx, const Tensor& heads, const Norm& norm) const {
  const Tensor own = heads.reshape({heads.size(0), heads.size(1), heads.size(2) * heads.size(3)});
  const Tensor normed = norm.forward(ctx, gather_from_tensor_model_parallel_region(ctx, own, tensor_group_));
  return scatter_to_tensor_model_parallel_region(ctx, normed, tensor_group_).reshape(heads.shape());
}

QueryKeyValue SelfAttention::heads_of(Context& ctx, const Tensor& mixed, const LayerInputs& inputs,
                                      bool are_direct) const {
  const bool has_norms = q_layernorm_ || qk_l2_norm_, is_rotated = inputs.rope && uses_rope_;
  if (is_rotated && !has_norms) return split_rotated_qkv(ctx, mixed, mixed_heads(), *inputs.rope, inputs.layout);
  QueryKeyValue x = split_qkv(ctx, mixed, mixed_heads(), are_direct ? QkvParts::kViews : QkvParts::kCopies);
  x.query = normalized(ctx, x.query, q_layernorm_.get());
  x.key = normalized(ctx, x.key, k_layernorm_.get());
  if (is_rotated) {
    x.query = rope(ctx, x.query, *inputs.rope, inputs.layout);
    x.key = rope(ctx, x.key, *inputs.rope, inputs.layout);
  }
  return x;
}

Tensor SelfAttention::mixed_of(Context& ctx, const Tensor& x) const {
  const OffloadScope scope(ctx, offload_of_qkv_linear_);
  return linear_qkv_->forward(ctx, x);
}

BlockOutput SelfAttention::forward(Context& ctx, const Tensor& x, const LayerInputs& inputs) const {
  // They are copies if something stands between projection and attention: views would keep the whole projection alive.
  const bool are_direct = num_heads_ == num_groups_ && !has_gate_ && !q_layernorm_ && !qk_l2_norm_ &&
                          !(inputs.rope && uses_rope_) && !inputs.state && !core_attention_->shares_sequences();
  QueryKeyValue heads = heads_of(ctx, mixed_of(ctx, x), inputs, are_direct);
  if (inputs.state) {
    KeyValueCache::Filled filled = state_as<KeyValueCache>(*inputs.state).append(ctx, heads.key, heads.value);
    heads.key = std::move(filled.key);
    heads.value = std::move(filled.value);
  }
  Tensor attended = core_attention_->forward(ctx, heads.query, heads.key, heads.value, inputs, are_direct);
  if (has_gate_) attended = sigmoid_gate(ctx, attended, heads.gate);
  const OffloadScope scope(ctx, offload_of_attn_proj_);
  return {linear_proj_->forward(ctx, attended), linear_proj_->bias()};
}

}  // namespace megatron
