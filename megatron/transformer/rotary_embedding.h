// Makes the table of rotary positions for a config.
#pragma once

#include <optional>

#include "megatron/ops/rope.h"
#include "megatron/transformer/transformer_config.h"

namespace megatron {

/// The table of a model for positions below `num_positions`; nothing if the config has no rotary positions.
std::optional<RopeTable> make_rope_table(const Context& ctx, const TransformerConfig& config, int64_t num_positions);

/// The tables of all layers of a model.
struct RopeTables {
  RopeTables(const Context& ctx, const TransformerConfig& config, int64_t num_positions);

  /// Returns the table of layer `layer_number` (from 1); null without rotary positions.
  const RopeTable* of_layer(const TransformerConfig& config, int64_t layer_number) const;
  /// Returns the table of layers that see the whole sequence; null without rotary positions.
  const RopeTable* of_whole_sequence() const { return whole ? &*whole : nullptr; }

  std::optional<RopeTable> whole;
  std::optional<RopeTable> sliding;  ///< of layers with the window; none: they use `whole`
};

}  // namespace megatron
