// Multi-latent attention, as a part of TransformerConfig. Names are Megatron Core's.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

#include "megatron/transformer/config_rules.h"

namespace megatron {

/// How the rotating part of the heads of multi-latent attention is rotated.
enum class RopeType { kRope, kYarn };

constexpr auto names_of_enum(RopeType) {
  return std::to_array<std::pair<RopeType, std::string_view>>({{RopeType::kRope, "rope"}, {RopeType::kYarn, "yarn"}});
}

struct MlaConfig {
  std::optional<int64_t> q_lora_rank = {};  ///< none: queries are projected without a latent
  int64_t kv_lora_rank = 32;
  int64_t qk_head_dim = 128;         ///< the part of a query's and key's head that does not rotate
  int64_t qk_pos_emb_head_dim = 64;  ///< the part that rotates
  int64_t v_head_dim = 128;
  RopeType rope_type = RopeType::kYarn;  ///< with the base, percent and yarn settings of TransformerConfig

  /// Weights of the projections and norms of a layer, as Megatron's formulas count them: multiply-adds of a token.
  int64_t num_weights(int64_t hidden_size, int64_t num_heads) const {
    const int64_t of_queries = num_heads * (qk_head_dim + qk_pos_emb_head_dim);
    const int64_t query = q_lora_rank ? *q_lora_rank * (hidden_size + of_queries + 1) : hidden_size * of_queries;
    const int64_t key_value = kv_lora_rank * (hidden_size + num_heads * (qk_head_dim + v_head_dim) + 1);
    return query + key_value + hidden_size * qk_pos_emb_head_dim + num_heads * v_head_dim * hidden_size;
  }

  void validate(ConfigRules& rules) const {
    if (q_lora_rank) rules.positive("mla.q_lora_rank", *q_lora_rank);
    rules.positive("mla.kv_lora_rank", kv_lora_rank);
    rules.positive("mla.qk_head_dim", qk_head_dim);
    rules.positive("mla.qk_pos_emb_head_dim", qk_pos_emb_head_dim);
    rules.positive("mla.v_head_dim", v_head_dim);
    rules.rule(qk_pos_emb_head_dim % 2 == 0,
               "mla.qk_pos_emb_head_dim is {}; it must be even, because rotation takes pairs", qk_pos_emb_head_dim);
  }
};

}  // namespace megatron
