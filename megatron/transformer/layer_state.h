// The state that a layer keeps between generated tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "megatron/base/error.h"

namespace megatron {

/// The base of keys and values, latents, recurrent states or pages. A layer makes its own state and alone knows its
/// type.
class LayerState {
 public:
  LayerState() = default;
  virtual ~LayerState() = default;
  LayerState(const LayerState&) = delete;
  LayerState& operator=(const LayerState&) = delete;
};

/// The states of a stack of layers, in order; null for a layer without state.
using LayerStates = std::vector<std::unique_ptr<LayerState>>;

/// The largest sizes that generation will ask for.
struct LayerStateSizes {
  int64_t max_rows = 0;  ///< tokens of a sequence, the prompt included
  int64_t b = 0;         ///< sequences
};

/// The state as the type that its layer made.
/// @throw InternalError if another kind of layer made it.
template <class State>
State& state_as(LayerState& state) {
  auto* own = dynamic_cast<State*>(&state);
  require(own != nullptr, "[LayerState] the layer got a state that another kind of layer has made.");
  return *own;
}

}  // namespace megatron
