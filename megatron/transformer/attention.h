// The interface of every kind of attention.
#pragma once

#include <memory>

#include "megatron/transformer/decoder_layer.h"
#include "megatron/transformer/mlp.h"

namespace megatron {

/// The part of a layer that moves information between positions. Megatron Core: core/transformer/attention.py.
class Attention : public Module {
 public:
  /// @param x [s, b, h] ([s/tp, b, h] under sequence parallelism)
  virtual BlockOutput forward(Context& ctx, const Tensor& x, const LayerInputs& inputs) const = 0;

  /// Makes room for the keys and values of this rank's heads. forward() appends to it if LayerInputs::state is given.
  virtual std::unique_ptr<LayerState> make_state(const Context& ctx, const LayerStateSizes& sizes) const = 0;
};

}  // namespace megatron
