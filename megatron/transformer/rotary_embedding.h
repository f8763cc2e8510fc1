// Makes the table of rotary positions for a config.
#pragma once

#include <optional>

#include "megatron/ops/rope.h"
#include "megatron/transformer/transformer_config.h"

namespace megatron {

/// The table of a model for positions below `num_positions`; nothing if the config has no rotary positions.
std::optional<RopeTable> make_rope_table(const Context& ctx, const TransformerConfig& config, int64_t num_positions);

}  // namespace megatron
