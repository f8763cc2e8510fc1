// Multi-latent attention, as a part of TransformerConfig. Names are Megatron Core's.
#pragma once

#include <cstdint>
#include <optional>

#include "megatron/transformer/config_rules.h"

namespace megatron {

struct MlaConfig {
  std::optional<int64_t> q_lora_rank = {};  ///< none: queries are projected without a latent
  int64_t kv_lora_rank = 32;
  int64_t qk_head_dim = 128;         ///< the part of a query's and key's head that does not rotate
  int64_t qk_pos_emb_head_dim = 64;  ///< the part that rotates
  int64_t v_head_dim = 128;

  void validate(ConfigRules& rules) const {
    if (q_lora_rank) rules.positive("mla.q_lora_rank", *q_lora_rank);
    rules.positive("mla.kv_lora_rank", kv_lora_rank);
    rules.positive("mla.qk_head_dim", qk_head_dim);
    rules.positive("mla.qk_pos_emb_head_dim", qk_pos_emb_head_dim);
    rules.positive("mla.v_head_dim", v_head_dim);
  }
};

}  // namespace megatron
