// GPT: embedding, decoder layers, final norm, output projection. Megatron Core: core/models/gpt/gpt_model.py.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "megatron/autograd/segment.h"
#include "megatron/models/gpt/gpt_embedding.h"
#include "megatron/tensor_parallel/lm_head_loss.h"
#include "megatron/transformer/transformer_layer.h"

namespace megatron {

/// The data of one micro-batch. It must stay where it is until its backward has ended.
struct GptMicroBatch {
  Tensor tokens, labels;  // [s, b] int64 or int32, any strides
  Tensor loss_mask;       // [s, b] floating
  SequenceLayout layout;
  double loss_weight = 1;  // 1 for the sum over tokens; 1 / (tokens * micro-batches) for the mean of means
};
using GptMicroBatches = std::function<const GptMicroBatch&(int micro_batch)>;

/// The whole model on one pipeline stage. All tensor-parallel ranks give the same losses and logits.
/// Example: examples/simple_train_loop.cpp.
class GptModel : public Module {
 public:
  explicit GptModel(const ModuleContext& context);

  /// Writes the initial weights: functions of (seed, name, element).
  void initialize(const Context& ctx);
  /// Sum over the tokens of a micro-batch of mask * loss * loss_weight, [1] float64.
  Tensor loss(Context& ctx, const GptMicroBatch& batch) const;
  /// Loss of every token [s, b], fp32.
  Tensor token_losses(Context& ctx, const GptMicroBatch& batch) const;
  /// Logits [s, b, padded vocabulary] for generation and tests, whole on every rank. @param caches one a layer, or
  /// none.
  Tensor logits(Context& ctx, const Tensor& tokens, const SequenceLayout& layout,
                std::vector<KeyValueCache>* caches) const;
  std::vector<KeyValueCache> make_caches(const Context& ctx, int64_t max_rows, int64_t b) const;

  /// The model as a chunk of a schedule: embedding, layers (one segment each, or one a recompute unit), head. The last
  /// payload is {"loss"}. `batches` is called by forward, and again by recompute.
  Chunk segments(const GptMicroBatches& batches) const;
  const TransformerConfig& config() const { return config_; }

 private:
  Tensor decode(Context& ctx, Tensor hidden, size_t first, size_t end, const LayerInputs& inputs) const;
  Tensor head_loss(Context& ctx, const Tensor& hidden, const GptMicroBatch& batch) const;
  Parameter& output_weight() const;
  LayerInputs inputs_of(const SequenceLayout& layout) const;

  TransformerConfig config_;
  ProcessGroup tensor_group_;
  bool sequence_parallel_;
  std::optional<RopeTable> rope_;
  std::unique_ptr<GptEmbedding> embedding_;
  std::vector<std::unique_ptr<TransformerLayer>> layers_;
  std::unique_ptr<Norm> final_layernorm_;
  std::unique_ptr<Parameter> output_weight_;  // null if tied
};

}  // namespace megatron
