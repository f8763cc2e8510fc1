#include "megatron/transformer/transformer_config.h"

#include <algorithm>

namespace megatron {
namespace {

// The entry of a list for layer `layer_number`, or whether the interval divides it.
bool marks(const LayerPattern& pattern, int64_t layer_number) {
  if (pattern.interval > 0) return layer_number % pattern.interval == 0;
  return pattern.per_layer.at(static_cast<size_t>(layer_number - 1)) != 0;
}

}  // namespace

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
