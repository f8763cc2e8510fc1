// GPT: embedding, decoder layers, final norm, output projection. Megatron Core: core/models/gpt/gpt_model.py.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "megatron/models/gpt/gpt_layer_spec.h"
#include "megatron/models/gpt/gpt_stage.h"

namespace megatron {

/// What one rank has of the model: its virtual pipeline stages, in order. Initial weights do not depend on the layout.
/// All tensor-parallel ranks give the same losses and logits.
/// Example: examples/simple_train_loop.cpp.
class GptModel : public Module {
 public:
  /// The whole model on one pipeline rank. @throw as TransformerConfig::validate.
  explicit GptModel(const ModuleContext& context, const LayerSpec& layer_spec = gpt_layer_spec());
  /// The stages of this rank of context.groups.pp. @throw ConfigError if the layout is for another model or number of
  /// ranks.
  GptModel(const ModuleContext& context, const PipelineLayout& layout, const LayerSpec& layer_spec = gpt_layer_spec());

  /// Writes the initial weights: functions of (seed, name, element).
  void initialize(const Context& ctx);

  /// The stages as chunks of a schedule. What crosses a border is border_payload(); the last stage gives {"loss"}, the
  /// sum over the tokens of a micro-batch of mask * loss * loss_weight, [1] float64.
  std::vector<Chunk> chunks(const GptMicroBatches& batches) const;
  /// Hidden states of micro-batches [s, b], of this rank's rows under sequence parallelism.
  std::vector<PayloadSpec> border_payload(int64_t s, int64_t b) const;
  const std::vector<std::unique_ptr<GptStage>>& stages() const { return stages_; }
  /// The embedding that another pipeline rank has a copy of, or that copy: the gradient is the sum of both. Null if
  /// there is none on this rank.
  Parameter* tied_across_ranks() const { return tied_across_ranks_; }

  // Of a model that is whole on this rank; else they throw InternalError.
  /// Sum over the tokens of a micro-batch of mask * loss * loss_weight, [1] float64.
  Tensor loss(Context& ctx, const GptMicroBatch& batch) const;
  /// Loss of every token [s, b], fp32.
  Tensor token_losses(Context& ctx, const GptMicroBatch& batch) const;
  /// Logits [s, b, padded vocabulary] for generation and tests, whole on every rank. @param states  of make_states(),
  /// or null: the tokens are whole sequences.
  Tensor logits(Context& ctx, const Tensor& tokens, const SequenceLayout& layout, const LayerStates* states) const;
  /// What the layers keep between the tokens of a generation.
  LayerStates make_states(const Context& ctx, const LayerStateSizes& sizes) const;

  const TransformerConfig& config() const { return config_; }

 private:
  const GptStage& whole() const;

  TransformerConfig config_;
  ProcessGroup tensor_group_;
  bool sequence_parallel_;
  std::optional<RopeTable> rope_;
  std::vector<std::unique_ptr<GptStage>> stages_;
  Parameter* tied_across_ranks_ = nullptr;
};

}  // namespace megatron
