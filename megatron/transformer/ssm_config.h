// State-space layers (Mamba-2), as a part of TransformerConfig. Names are Megatron Core's without "mamba_".
#pragma once

#include <cstdint>
#include <optional>

#include "megatron/transformer/config_rules.h"

namespace megatron {

struct SsmConfig {
  int64_t state_dim = 128;
  int64_t head_dim = 64;
  int64_t num_groups = 8;                 ///< heads of a group share the input and output matrices of the recurrence
  std::optional<int64_t> num_heads = {};  ///< none: inner_size / head_dim

  /// Width of the recurrence.
  static int64_t inner_size(int64_t hidden_size) { return 2 * hidden_size; }
  int64_t heads(int64_t hidden_size) const { return num_heads.value_or(inner_size(hidden_size) / head_dim); }

  void validate(ConfigRules& rules) const {
    rules.positive("ssm.state_dim", state_dim);
    rules.positive("ssm.head_dim", head_dim);
    rules.positive("ssm.num_groups", num_groups);
    if (num_heads) rules.positive("ssm.num_heads", *num_heads);
  }
};

}  // namespace megatron
