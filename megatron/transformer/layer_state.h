// What a layer keeps between the tokens that a model generates.
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

/// Of a stack of layers, in order; null for a layer that keeps nothing.
using LayerStates = std::vector<std::unique_ptr<LayerState>>;

/// What generation will ask for at most.
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
