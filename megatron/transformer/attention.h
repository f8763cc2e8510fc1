// The interface of every kind of attention.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "megatron/autograd/scaled_rows.h"
#include "megatron/transformer/decoder_layer.h"
#include "megatron/transformer/mlp.h"
#include "megatron/transformer/qk_clip.h"

namespace megatron {

/// The part of a layer that moves information between positions. Megatron Core: core/transformer/attention.py.
class Attention : public Module {
 public:
  /// @param x [s, b, h] ([s/tp, b, h] under sequence parallelism)
  virtual BlockOutput forward(Context& ctx, const Tensor& x, const LayerInputs& inputs) const = 0;

  /// Makes room for the keys and values of this rank's heads. forward() appends to it if LayerInputs::state is given.
  virtual std::unique_ptr<LayerState> make_state(const Context& ctx, const LayerStateSizes& sizes) const = 0;

  /// The rows of this rank's weights that QK-clip scales. @param max_logits  of the layer's heads, on all ranks.
  virtual std::vector<ScaledRows> clipped_rows(std::span<const double> max_logits, const QkClip& clip) const = 0;
};

}  // namespace megatron
