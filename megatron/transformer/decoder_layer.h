// What a decoder is a stack of, whatever its layers compute, and how a model makes them.
#pragma once

#include <functional>
#include <memory>

#include "megatron/autograd/module.h"
#include "megatron/core/sequence_layout.h"
#include "megatron/ops/rope.h"
#include "megatron/transformer/key_value_cache.h"
#include "megatron/transformer/module_context.h"

namespace megatron {

/// What the layers of a model share in one forward.
struct LayerInputs {
  const SequenceLayout& layout;     // of whole sequences
  RowMap rows;                      // of the residual stream on this rank (tensor_parallel/sequence_rows.h)
  const RopeTable* rope = nullptr;  // null: no rotary positions
  KeyValueCache* cache = nullptr;   // of the layer that is called; null in training
};

/// One layer. What it keeps for backward is on the tape, so that it can run again for another micro-batch.
class DecoderLayer : public Module {
 public:
  /// @param hidden [s, b, h] ([s/tp, b, h] under sequence parallelism), in fp32 with an fp32 residual stream.
  /// @return the same shape and dtype.
  virtual Tensor forward(Context& ctx, const Tensor& hidden, const LayerInputs& inputs) const = 0;
};

/// Makes layer `layer_number` (from 1, global) under the name context.path. Megatron Core:
/// core/transformer/spec_utils.py and core/models/gpt/gpt_layer_specs.py, where a layer is described by the classes of
/// its parts.
using LayerSpec = std::function<std::unique_ptr<DecoderLayer>(const ModuleContext& context, int64_t layer_number)>;

}  // namespace megatron
