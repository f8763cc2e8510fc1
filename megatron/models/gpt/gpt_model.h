// GPT: embedding, decoder layers, final norm, output projection. Megatron Core: core/models/gpt/gpt_model.py.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "megatron/models/gpt/gpt_layer_spec.h"
#include "megatron/models/gpt/gpt_stage.h"
#include "megatron/models/model.h"

namespace megatron {

/// A decoder over tokens. Example: examples/simple_train_loop.cpp.
class GptModel : public Model {
 public:
  /// The whole model on one pipeline rank. @throw as TransformerConfig::validate.
  explicit GptModel(const ModuleContext& context, const LayerSpec& layer_spec = gpt_layer_spec());
  /// The stages of this rank of context.groups.pp. @throw ConfigError if the layout is for another model or number of
  /// ranks.
  GptModel(const ModuleContext& context, const PipelineLayout& layout, const LayerSpec& layer_spec = gpt_layer_spec());

  const TransformerConfig& config() const override { return config_; }
  std::vector<std::vector<Parameter*>> stage_parameters() const override;

  std::vector<std::string> losses() const override { return {std::string(GptStage::kLoss)}; }
  /// The auxiliary losses of mixtures of experts, and the loads of experts with per_layer_logging
  /// (transformer/moe/moe_step.h). The losses of multi-token prediction, as sums over the micro-batches of their means.
  std::vector<MetricSpec> metrics() const override;
  bool attaches_losses() const override;
  void begin_step(const Context& ctx) const override;
  void finish_step(const Context& ctx) const override;
  std::vector<ScaledRows> clipped_rows(std::span<const double> max_logits) const override;
  void set_bounded(bool is_bounded) const override;
  /// The layers with experts of this rank's stages, in their order; layers for further tokens come last. Their routers
  /// record and replay routes.
  std::vector<MoeLayer*> experts() const;
  /// @param batches  of the tensors and the layout that gpt_batch names.
  std::vector<Chunk> chunks(const Batches& batches) const override;
  /// Computes hidden states, of this rank's rows under sequence parallelism.
  std::vector<PayloadSpec> border_payload(int stage, const Batch& batch) const override;

  // These are of a model that is whole on this rank; else they throw InternalError.
  /// The sum over the tokens of a micro-batch of mask * loss * loss_weight, [1] float64.
  Tensor loss(Context& ctx, const Batch& batch) const;
  /// The loss of every token [s, b], fp32.
  Tensor token_losses(Context& ctx, const Batch& batch) const;

  /// All ranks of the pipeline call it; each gets the logits of the last stage.
  Tensor logits(Context& ctx, const Tensor& tokens, const SequenceLayout& layout,
                const LayerStates* states) const override;
  /// Makes the states of this rank's layers.
  LayerStates make_states(const Context& ctx, const LayerStateSizes& sizes) const override;

 private:
  const GptStage& whole() const;
  /// The hidden states [s, b, h] that stage `stage` gives to the next one.
  PayloadSpec hidden_behind(int stage, const SequenceLayout& layout) const;
  /// The logits of the last stage's rank, on all ranks of the pipeline and on all that replicate the tokens.
  Tensor shared_logits(Context& ctx, Tensor logits, const SequenceLayout& layout) const;

  TransformerConfig config_;
  ProcessGroup tensor_group_, pipeline_group_, metric_group_, data_group_, replica_group_;
  bool sequence_parallel_, replicates_tokens_;
  StagePlacement placement_;
  int mtp_stage_ = 0;  // the virtual stage with the layers for further tokens; their number without
  RopeTables rope_;
  std::vector<std::unique_ptr<GptStage>> stages_;
};

}  // namespace megatron
