// The interface of a model to training, checkpoints, generation and verification.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "megatron/autograd/module.h"
#include "megatron/autograd/scaled_rows.h"
#include "megatron/autograd/segment.h"
#include "megatron/models/batch.h"
#include "megatron/models/metric_spec.h"
#include "megatron/transformer/layer_state.h"
#include "megatron/transformer/transformer_config.h"

namespace megatron {

/// One rank's virtual pipeline stages of a model, in order. Initial weights do not depend on the layout, and all
/// tensor-parallel ranks give the same losses and logits.
class Model : public Module {
 public:
  virtual const TransformerConfig& config() const = 0;

  /// Writes the initial weights: functions of (seed, name, element).
  void initialize(const Context& ctx);
  /// Parameters of each of this rank's stages.
  virtual std::vector<std::vector<Parameter*>> stage_parameters() const = 0;

  /// The stages as chunks of a schedule. The last stage of the model gives the tensors that losses() names.
  virtual std::vector<Chunk> chunks(const Batches& batches) const = 0;
  /// The tensors that virtual stage `stage` sends to the next one for a micro-batch.
  virtual std::vector<PayloadSpec> border_payload(int stage, const Batch& batch) const = 0;
  /// Each is [1] float64: for a micro-batch the sum over its tokens of mask * loss * loss_weight (the batch's tensor of
  /// this name). Training follows the gradient of their sum, and the log has them by these names.
  virtual std::vector<std::string> losses() const = 0;
  /// The metrics that segments count beside the losses. They add to a tensor of the metric's name in every batch.
  virtual std::vector<MetricSpec> metrics() const { return {}; }
  /// True if layers attach losses of their own to the tensors that pass through them. Then every batch of a training
  /// step has the tensor kAttachedLossScale (transformer/moe/moe_step.h), the gradient of such a loss.
  virtual bool attaches_losses() const { return false; }

  /// Called before the forward and backward pass of a step, and again if they are repeated: sets layers' counts to 0.
  virtual void begin_step(const Context& ctx) const { static_cast<void>(ctx); }
  /// Ends a training step, on all ranks: layers update values without a gradient, such as the expert bias.
  virtual void finish_step(const Context& ctx) const { static_cast<void>(ctx); }
  /// The rows of this rank's weights that QK-clip scales after a step, by the metric kMaxAttentionLogits of it
  /// (transformer/qk_clip.h). The same on all data-parallel ranks.
  virtual std::vector<ScaledRows> clipped_rows(std::span<const double> max_logits) const {
    static_cast<void>(max_logits);
    return {};
  }
  /// false: in training, layers have room for any number of rows, so that StepState::overflow is not raised. true, as
  /// at first: for as many as their configuration says. The bits of the results do not depend on it.
  virtual void set_bounded(bool is_bounded) const { static_cast<void>(is_bounded); }

  // These are of a model that generates; others throw NotSupported.
  /// Logits [s, b, padded vocabulary], whole on every tensor- and pipeline-parallel rank, which all call it.
  /// @param states  of make_states(), or null: the tokens are whole sequences.
  virtual Tensor logits(Context& ctx, const Tensor& tokens, const SequenceLayout& layout,
                        const LayerStates* states) const;
  /// Makes the states that this rank's layers keep between generated tokens.
  virtual LayerStates make_states(const Context& ctx, const LayerStateSizes& sizes) const;
};

}  // namespace megatron
