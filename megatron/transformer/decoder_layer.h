// The interface of a decoder's layers, and how a model makes them.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "megatron/autograd/module.h"
#include "megatron/autograd/tape.h"
#include "megatron/core/sequence_layout.h"
#include "megatron/ops/rope.h"
#include "megatron/transformer/layer_state.h"
#include "megatron/transformer/module_context.h"

namespace megatron {

/// The values that the layers of a model share in one forward.
struct LayerInputs {
  const SequenceLayout& layout;     // of whole sequences
  RowMap rows;                      // of the residual stream on this rank (tensor_parallel/sequence_rows.h)
  const RopeTable* rope = nullptr;  // null: no rotary positions
  LayerState* state = nullptr;      // of the layer that is called; null in training
  int64_t mtp_depth = 0;            // how many tokens further a layer behind the decoder predicts; 0: of the decoder
  /// The accumulators of a training step's metrics and the scales of losses that layers attach, by name.
  std::span<const NamedTensor> step = {};
};

class Attention;
class MoeLayer;

/// A part of a layer that a schedule can run on its own: attention and feed-forward, or dispatch, experts and combine.
/// It takes the tensors that the previous part returns. The first part takes {"hidden"}, and the last part returns
/// {"hidden"}.
struct LayerPart {
  std::string name;                    // within the layer
  std::vector<Parameter*> parameters;  // all that it may use
  std::function<Payload(Context&, const Payload&, const LayerInputs&)> forward;
};

/// One layer. Tensors that backward needs are on the tape, so that the layer can run again for another micro-batch.
class DecoderLayer : public Module {
 public:
  /// @param hidden [s, b, h] ([s/tp, b, h] under sequence parallelism), in fp32 with an fp32 residual stream.
  /// @return the same shape and dtype.
  virtual Tensor forward(Context& ctx, const Tensor& hidden, const LayerInputs& inputs) const = 0;

  /// The same computation in pieces, in order; they refer to the layer. By default the layer is one part; a layer
  /// without any leaves the hidden states as they are.
  virtual std::vector<LayerPart> parts() const;

  /// Makes the state that this layer keeps between generated tokens, empty at first; null if there is none. forward()
  /// gets it in LayerInputs::state.
  virtual std::unique_ptr<LayerState> make_state(const Context& ctx, const LayerStateSizes& sizes) const = 0;

  /// Its mixture of experts; null without one.
  virtual MoeLayer* experts() const { return nullptr; }
  /// Its attention; null without any.
  virtual const Attention* attention() const { return nullptr; }
};

/// Makes layer `layer_number` (from 1, global) under the name context.path. Megatron Core:
/// core/transformer/spec_utils.py and core/models/gpt/gpt_layer_specs.py, where a layer is described by the classes of
/// its parts.
using LayerSpec = std::function<std::unique_ptr<DecoderLayer>(const ModuleContext& context, int64_t layer_number)>;

}  // namespace megatron
