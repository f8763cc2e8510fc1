#include "megatron/dist_checkpointing/megatron_names.h"

#include <fmt/core.h>

namespace megatron {

std::string stacked_layer_key(std::string_view name) { return fmt::format("decoder.layers.{}", name); }

std::string optimizer_state_key(std::string_view state, std::string_view parameter_key) {
  return fmt::format("optimizer.state.{}.{}", state, parameter_key);
}

}  // namespace megatron
