#include "megatron/transformer/rotary_embedding.h"

namespace megatron {

namespace {

// Latent attention pairs neighbours, whatever else the config says.
kernels::RopePairs pairs_of(const TransformerConfig& config) {
  return config.rotary_interleaved || config.mla ? kernels::RopePairs::kInterleaved : kernels::RopePairs::kHalves;
}

std::optional<RopeTable> make_sliding_rope_table(const Context& ctx, const TransformerConfig& config,
                                                 int64_t num_positions) {
  if (!config.has_rotary_positions() || !config.sliding_window_rotary_base) return std::nullopt;
  const kernels::RopeSettings settings{.head_size = config.rotary_channels(),
                                       .base = static_cast<double>(*config.sliding_window_rotary_base),
                                       .percent = config.rotary_percent,
                                       .interpolation_factor = 1};
  return RopeTable::make(ctx, settings, pairs_of(config), num_positions, config.params_dtype);
}

}  // namespace

std::optional<RopeTable> make_rope_table(const Context& ctx, const TransformerConfig& config, int64_t num_positions) {
  if (!config.has_rotary_positions()) return std::nullopt;
  const bool is_yarn = config.mla ? config.mla->rope_type == RopeType::kYarn
                                  : config.position_embedding_type == PositionEmbeddingType::kYarn;
  const int64_t original = config.rope_scaling_original_max_position_embeddings;
  const int64_t length = config.sequence_length > 0 ? config.sequence_length : config.max_sequence_length;
  kernels::RopeSettings settings{.head_size = config.rotary_channels(),
                                 .base = static_cast<double>(config.rotary_base),
                                 .percent = config.rotary_percent,
                                 .interpolation_factor = config.rotary_seq_len_interpolation_factor.value_or(1.0)};
  if (is_yarn) {
    settings.scaling = kernels::RopeScaling::kYarn;
    if (config.mla) settings.percent = 1;  // as in Megatron
    settings.yarn = {.factor = config.yarn_rotary_scaling_factor,
                     .beta_fast = config.yarn_beta_fast,
                     .beta_slow = config.yarn_beta_slow,
                     .original_length = config.yarn_original_max_position_embeddings,
                     .mscale = config.yarn_mscale,
                     .mscale_all_dim = config.yarn_mscale_all_dim,
                     .round_range = config.yarn_correction_range_round_to_int};
  } else if (config.use_rope_scaling) {
    settings.scaling = kernels::RopeScaling::kLlama3;
    settings.llama3 = {.factor = config.rope_scaling_factor,
                       .low_frequency_factor = config.rope_scaling_low_freq_factor,
                       .high_frequency_factor = config.rope_scaling_high_freq_factor,
                       .original_length = original};
  } else if (config.dynamic_rope_factor) {
    settings.scaling = kernels::RopeScaling::kDynamic;
    settings.dynamic = {.factor = *config.dynamic_rope_factor, .original_length = original, .length = length};
  } else if (!config.longrope_long_factor.empty()) {
    settings.scaling = kernels::RopeScaling::kLong;
    settings.longrope = {.factors = length > original ? config.longrope_long_factor : config.longrope_short_factor,
                         .magnitude = config.longrope_attention_factor};
  }
  return RopeTable::make(ctx, settings, pairs_of(config), num_positions, config.params_dtype);
}

RopeTables::RopeTables(const Context& ctx, const TransformerConfig& config, int64_t num_positions)
    : whole(make_rope_table(ctx, config, num_positions)),
      sliding(make_sliding_rope_table(ctx, config, num_positions)) {}

const RopeTable* RopeTables::of_layer(const TransformerConfig& config, int64_t layer_number) const {
  return sliding && !config.sees_whole_sequence(layer_number) ? &*sliding : of_whole_sequence();
}

}  // namespace megatron
