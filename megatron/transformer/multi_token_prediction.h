// A layer that predicts one token further than the layer before it. Megatron Core:
// core/transformer/multi_token_prediction.py.
#pragma once

#include <memory>

#include "megatron/tensor_parallel/layers.h"
#include "megatron/transformer/decoder_layer.h"
#include "megatron/transformer/norm.h"

namespace megatron {

/// Joins the hidden states of a depth with the embeddings of the tokens that follow, and runs a decoder layer of the
/// kind of the model's last one over them. Source: DeepSeek-V3 (arXiv:2412.19437), section 2.2.
class MultiTokenPredictionLayer : public Module {
 public:
  /// @param context     of this layer: "mtp.layers.0". @param layer_spec  makes the decoder layer.
  MultiTokenPredictionLayer(const ModuleContext& context, const LayerSpec& layer_spec);
  /// @param hidden    [s, b, h] ([s/tp, b, h] under sequence parallelism) of the depth before, after its final norm.
  /// @param embedded  the same shape: embeddings of the tokens of this depth.
  /// @return          the same shape, after the final norm of this layer, in the dtype of the model.
  Tensor forward(Context& ctx, const Tensor& hidden, const Tensor& embedded, const LayerInputs& inputs) const;
  /// Null without.
  MoeLayer* experts() const { return transformer_layer_->experts(); }

 private:
  Tensor run(Context& ctx, const Tensor& hidden, const Tensor& embedded, const LayerInputs& inputs) const;

  ProcessGroup tensor_group_;
  bool sequence_parallel_, is_recomputed_;
  DType hidden_dtype_;
  std::unique_ptr<Norm> enorm_, hnorm_;
  std::unique_ptr<ColumnParallelLinear> eh_proj_;
  std::unique_ptr<DecoderLayer> transformer_layer_;
  std::unique_ptr<Norm> final_layernorm_;
};

}  // namespace megatron
