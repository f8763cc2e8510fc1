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

}  // namespace

void TransformerConfig::validate() const {
  std::vector<std::string> mistakes;
  const auto rule = [&]<class... Args>(bool kept, fmt::format_string<Args...> text, Args&&... args) {
    if (!kept) mistakes.push_back(fmt::format(text, std::forward<Args>(args)...));
  };
  const auto positive = [&](std::string_view name, auto value) {
    rule(value > 0, "{} is {}; it must be above 0", name, value);
  };
  const auto share = [&](std::string_view name, double value) {
    rule(value >= 0 && value <= 1, "{} is {}; it must be within 0 and 1", name, value);
  };
  const auto of_every_layer = [&](std::string_view name, const LayerPattern& pattern) {
    rule(pattern.interval >= 0 && (pattern.per_layer.empty() || std::ssize(pattern.per_layer) == num_layers),
         "{} has interval {} and {} entries for {} layers", name, pattern.interval, pattern.per_layer.size(),
         num_layers);
  };
  positive("num_layers", num_layers);
  positive("hidden_size", hidden_size);
  positive("ffn_hidden_size", ffn_hidden_size);
  positive("num_attention_heads", num_attention_heads);
  positive("num_query_groups", num_query_groups);
  positive("kv_channels", kv_channels);
  positive("vocab_size", vocab_size);
  positive("max_sequence_length", max_sequence_length);
  positive("layernorm_epsilon", layernorm_epsilon);
  rule(num_query_groups <= 0 || num_attention_heads % num_query_groups == 0,
       "num_attention_heads {} does not divide by num_query_groups {}", num_attention_heads, num_query_groups);
  rule(padded_vocab_size >= vocab_size, "padded_vocab_size {} is below vocab_size {}", padded_vocab_size, vocab_size);
  share("hidden_dropout", hidden_dropout);
  share("attention_dropout", attention_dropout);
  share("rotary_percent", rotary_percent);
  of_every_layer("window_attn_skip_freq", window_attn_skip_freq);
  of_every_layer("no_rope_freq", no_rope_freq);
  rule(recompute_granularity != RecomputeGranularity::kFull || recompute_num_layers > 0,
       "recompute_num_layers is {}; full recompute needs at least 1", recompute_num_layers);
  require<ConfigError>(mistakes.empty(), "[TransformerConfig] no model has these values:\n  - {}",
                       joined(mistakes, "\n  - "));
}

bool TransformerConfig::sees_whole_sequence(int64_t layer_number) const {
  if (!window_size) return true;
  if (!window_attn_skip_freq.given()) return false;
  const bool marked = marks(window_attn_skip_freq, layer_number);
  return window_attn_skip_freq.interval > 0 ? marked : !marked;
}

bool TransformerConfig::skips_rope(int64_t layer_number) const {
  return no_rope_freq.given() && marks(no_rope_freq, layer_number);
}

bool TransformerConfig::recomputes(RecomputeModule module) const {
  return recompute_granularity == RecomputeGranularity::kSelective &&
         std::find(recompute_modules.begin(), recompute_modules.end(), module) != recompute_modules.end();
}

}  // namespace megatron
