// Rotary positions as the config asks for them.
#pragma once

#include <optional>

#include "megatron/ops/rope.h"
#include "megatron/transformer/transformer_config.h"

namespace megatron {

/// The table of a model for positions below `num_positions`; nothing where the config has no rotary positions.
std::optional<RopeTable> make_rope_table(const Context& ctx, const TransformerConfig& config, int64_t num_positions);

}  // namespace megatron
