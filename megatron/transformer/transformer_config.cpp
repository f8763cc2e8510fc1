#include "megatron/transformer/transformer_config.h"

#include <algorithm>
#include <string>

#include "megatron/base/error.h"
#include "megatron/base/word_list.h"

namespace megatron {
namespace {

// The entry of a list for layer `layer_number`, or whether the interval divides it.
bool marks(const LayerPattern& pattern, int64_t layer_number) {
  if (pattern.interval > 0) return layer_number % pattern.interval == 0;
  return pattern.per_layer.at(static_cast<size_t>(layer_number - 1)) != 0;
}

/// Factors, soft caps, and what biases do not go with.
void check_factors(const TransformerConfig& config, ConfigRules& rules) {
  rules.positive("embedding_multiplier", config.embedding_multiplier);
  rules.positive("residual_multiplier", config.residual_multiplier);
  rules.positive("logits_multiplier", config.logits_multiplier);
  rules.positive("softmax_scale", config.softmax_scale.value_or(1));
  rules.positive("attn_logit_softcapping", config.attn_logit_softcapping.value_or(1));
  rules.positive("final_logit_softcapping", config.final_logit_softcapping.value_or(1));
  rules.positive("sliding_window_rotary_base", config.sliding_window_rotary_base.value_or(1));
  rules.rule(
      !config.add_bias_linear ||
          (config.layernorm_placement == LayerNormPlacement::kPre && config.residual_multiplier == 1),
      "add_bias_linear is set with norms behind the blocks or a residual_multiplier, which go with layers without "
      "biases");
  rules.rule(!config.sliding_window_rotary_base || config.mtp.num_layers == 0,
             "sliding_window_rotary_base is set with layers for further tokens, which have one table of positions");
}

void check_latent_attention(const TransformerConfig& config, ConfigRules& rules) {
  if (!config.mla) return;
  config.mla->validate(rules);
  rules.rule(!config.use_rope_scaling && !config.rotary_seq_len_interpolation_factor && !config.no_rope_freq.given() &&
                 !config.qk_l2_norm && !config.qk_layernorm_across_heads && !config.attention_output_gate &&
                 !config.softmax_scale && !config.sliding_window_rotary_base && !config.dynamic_rope_factor &&
                 config.longrope_long_factor.empty(),
             "mla is set with use_rope_scaling, rotary_seq_len_interpolation_factor, no_rope_freq, qk_l2_norm, "
             "qk_layernorm_across_heads, attention_output_gate, softmax_scale, sliding_window_rotary_base, "
             "dynamic_rope_factor or "
             "longrope_long_factor, which latent attention does not have");
}

}  // namespace

void TransformerConfig::validate() const {
  ConfigRules rules;
  const auto of_every_layer = [&](std::string_view name, const LayerPattern& pattern) {
    rules.rule(pattern.interval >= 0 && (pattern.per_layer.empty() || std::ssize(pattern.per_layer) == num_layers),
               "{} has interval {} and {} entries for {} layers", name, pattern.interval, pattern.per_layer.size(),
               num_layers);
  };
  rules.positive("num_layers", num_layers);
  rules.positive("hidden_size", hidden_size);
  rules.positive("ffn_hidden_size", ffn_hidden_size);
  rules.positive("num_attention_heads", num_attention_heads);
  rules.positive("num_query_groups", num_query_groups);
  rules.positive("kv_channels", kv_channels);
  rules.positive("vocab_size", vocab_size);
  rules.positive("max_sequence_length", max_sequence_length);
  rules.positive("layernorm_epsilon", layernorm_epsilon);
  check_factors(*this, rules);
  rules.rule(num_query_groups <= 0 || num_attention_heads % num_query_groups == 0,
             "num_attention_heads {} does not divide by num_query_groups {}", num_attention_heads, num_query_groups);
  rules.rule(padded_vocab_size >= vocab_size, "padded_vocab_size {} is below vocab_size {}", padded_vocab_size,
             vocab_size);
  rules.share("hidden_dropout", hidden_dropout);
  rules.share("attention_dropout", attention_dropout);
  rules.share("rotary_percent", rotary_percent);
  of_every_layer("window_attn_skip_freq", window_attn_skip_freq);
  of_every_layer("no_rope_freq", no_rope_freq);
  rules.rule(cp_comm_type.size() == 1 || std::ssize(cp_comm_type) == num_layers,
             "cp_comm_type has {} entries for {} layers: give one, or one for each layer", cp_comm_type.size(),
             num_layers);
  rules.rule(recompute_granularity != RecomputeGranularity::kFull || recompute_num_layers > 0,
             "recompute_num_layers is {}; full recompute needs at least 1", recompute_num_layers);
  if (moe) {
    moe->validate(rules);
    rules.rule(moe->layer_freq.interval > 0 || std::ssize(moe->layer_freq.per_layer) == num_layers,
               "moe.layer_freq has interval {} and {} entries for {} layers", moe->layer_freq.interval,
               moe->layer_freq.per_layer.size(), num_layers);
  }
  check_latent_attention(*this, rules);
  ssm.validate(rules);
  mtp.validate(rules);
  rules.rule(layer_kinds.empty() || std::ssize(layer_kinds) == num_layers, "layer_kinds has {} entries for {} layers",
             layer_kinds.size(), num_layers);
  const auto has = [&](auto LayerKind::*part, auto value) {
    return std::ranges::any_of(layer_kinds, [=](const LayerKind& kind) { return kind.*part == value; });
  };
  rules.rule(moe || !has(&LayerKind::feed_forward, FeedForward::kExperts),
             "layer_kinds has experts, and moe is not set");
  rules.rule(mla || !has(&LayerKind::mixer, Mixer::kLatentAttention),
             "layer_kinds has latent attention, and mla is not set");
  rules.rule(!mla || !has(&LayerKind::mixer, Mixer::kSelfAttention),
             "layer_kinds has self attention, and mla is set: one table of positions serves all layers");
  require<ConfigError>(rules.mistakes().empty(), "[TransformerConfig] no model has these values:\n  - {}",
                       joined(rules.mistakes(), "\n  - "));
}

bool TransformerConfig::sees_whole_sequence(int64_t layer_number) const {
  if (!window_size) return true;
  if (!window_attn_skip_freq.given()) return false;
  const bool marked = marks(window_attn_skip_freq, std::min(layer_number, num_layers));
  return window_attn_skip_freq.interval > 0 ? marked : !marked;
}

CpCommType TransformerConfig::cp_comm_type_of(int64_t layer_number) const {
  return cp_comm_type.size() == 1 ? cp_comm_type[0]
                                  : cp_comm_type.at(static_cast<size_t>(std::min(layer_number, num_layers) - 1));
}

bool TransformerConfig::skips_rope(int64_t layer_number) const {
  return no_rope_freq.given() && marks(no_rope_freq, std::min(layer_number, num_layers));
}

bool TransformerConfig::recomputes(RecomputeModule module) const {
  return recompute_granularity == RecomputeGranularity::kSelective &&
         std::find(recompute_modules.begin(), recompute_modules.end(), module) != recompute_modules.end();
}

OffloadChoice TransformerConfig::offload_of(OffloadModule module) const {
  const bool is_named = std::find(offload_modules.begin(), offload_modules.end(), module) != offload_modules.end();
  return {.offloads = fine_grained_activation_offloading && is_named, .min_elements = min_offloaded_tensor_size};
}

}  // namespace megatron
