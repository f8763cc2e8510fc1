// The part of a GPT that one virtual pipeline stage has. Megatron Core: core/models/gpt/gpt_model.py with pre_process
// and post_process, one object for each virtual stage.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "megatron/autograd/scaled_rows.h"
#include "megatron/autograd/segment.h"
#include "megatron/datasets/host_batch.h"
#include "megatron/models/batch.h"
#include "megatron/models/gpt/gpt_mtp.h"
#include "megatron/pipeline_parallel/pipeline_layout.h"
#include "megatron/tensor_parallel/lm_head_loss.h"
#include "megatron/transformer/decoder_layer.h"
#include "megatron/transformer/norm.h"
#include "megatron/transformer/rotary_embedding.h"

namespace megatron {

/// The names of the tensors that a GPT takes from a Batch.
namespace gpt_batch {
inline constexpr std::string_view kTokens = "tokens";  // [s, b] int64 or int32, any strides; also the layout
inline constexpr std::string_view kLabels = "labels";  // [s, b], as the tokens
inline constexpr std::string_view kLossMask = megatron::kLossMask;  // [s, b] floating
inline constexpr std::string_view kLossWeight = "loss_weight";      // [1] float64: 1 (or none) for the sum over tokens,
                                                                // 1 / (tokens * micro-batches) for the mean of means
}  // namespace gpt_batch

/// Those of embedding, a range of layers, final norm and output layer that belong to the stage. Parameters have their
/// names in the whole model.
class GptStage : public Module {
 public:
  static constexpr std::string_view kLoss = "lm loss";  // Megatron's name in the log

  /// @param layer_spec  makes the layers.
  /// @param rope  of the model; it must outlive the stage.
  /// @param words  how this rank's copy of the word embeddings is tied to those of other pipeline ranks.
  /// @param embedding  of an earlier stage of this rank, or null: then a stage whose output layer shares its weight, or
  ///              that predicts further tokens, has a copy of its own, of the same name, whose gradient is one summand
  ///              of all.
  GptStage(const ModuleContext& context, const StageLayers& layers, const LayerSpec& layer_spec, const RopeTables& rope,
           const TiedCopy& words, const GptEmbedding* embedding);

  // Hidden states are [s, b, h] ([s/tp, b, h] under sequence parallelism).
  /// The embedding, on the first stage.
  Tensor embed(Context& ctx, const Tensor& tokens, const SequenceLayout& layout) const;
  /// Runs the stage's layers over a batch.
  Tensor decode(Context& ctx, Tensor hidden, const Batch& batch) const;
  /// The stage in generation. @param input  tokens [s, b] on the first stage, the hidden states of the stage before on
  /// others. @param states  one a layer, or none. @return the hidden states for the next stage, or logits.
  Tensor infer(Context& ctx, const Tensor& input, const SequenceLayout& layout,
               std::span<const std::unique_ptr<LayerState>> states) const;
  LayerStates make_states(const Context& ctx, const LayerStateSizes& sizes) const;
  /// On the last stage: losses [s, b] of every token, or logits [s, b, padded vocabulary], whole on every tensor rank.
  Tensor head_losses(Context& ctx, const Tensor& hidden, const Tensor& labels) const;
  Tensor head_logits(Context& ctx, const Tensor& hidden) const;

  /// The stage as a chunk of a schedule: embedding, layers (a segment for each of their parts, or for a recompute
  /// unit), layers for further tokens, head. What crosses its borders is {"hidden"}, and behind the layers for further
  /// tokens the hidden states of each depth (mtp_hidden_name); the last stage gives {kLoss}. `batches` is called by
  /// forward, and again by recompute.
  Chunk segments(const Batches& batches) const;

  size_t num_layers() const { return layers_.size(); }
  const StageLayers& layers() const { return stage_; }
  /// The mixtures of experts of the layers, those for further tokens included.
  std::vector<MoeLayer*> experts() const;
  /// The rows of weights that QK-clip scales in the layers of the decoder. @param max_logits  of all layers.
  std::vector<ScaledRows> clipped_rows(std::span<const double> max_logits) const;
  /// Null if the stage has no embedding of its own.
  const GptEmbedding* embedding() const { return embedding_.get(); }

 private:
  void register_output_weight(const ModuleContext& context, const TiedCopy& words);
  LayerInputs inputs_of(const SequenceLayout& layout) const;
  LayerInputs inputs_of(const Batch& batch) const;
  /// The rotary table of the stage's layer `index`.
  const RopeTable* rope_of(size_t index) const;
  Tensor decode_range(Context& ctx, Tensor hidden, size_t first, size_t end, const Batch& batch) const;
  void append_layers(const Batches& batches, Chunk& chunk) const;
  void append_parts(const Batches& batches, size_t layer, Chunk& chunk) const;
  Segment recomputed_segment(const Batches& batches, size_t first, size_t end) const;
  void append_further_tokens(const Batches& batches, Chunk& chunk) const;
  Segment head_segment(const Batches& batches) const;
  /// Computes the losses of all tokens from hidden states after the final norm.
  Tensor losses_of(Context& ctx, const Tensor& normed, const Tensor& labels) const;
  /// Multiplies hidden states by the multiplier of the logits.
  Tensor head_input(Context& ctx, const Tensor& normed) const;
  /// Attaches the losses of further tokens to `loss`.
  Tensor with_further_losses(Context& ctx, const Tensor& loss, const Payload& in, const Batch& batch) const;
  bool predicts_further_tokens() const { return config_.mtp.num_layers > 0; }
  Parameter& output_weight() const { return tied_ ? *tied_ : *output_weight_; }

  TransformerConfig config_;
  ProcessGroup tensor_group_;
  bool sequence_parallel_;
  StageLayers stage_;
  const RopeTables& rope_;
  Parameter* tied_;
  std::unique_ptr<GptEmbedding> embedding_;
  std::vector<std::unique_ptr<DecoderLayer>> layers_;
  std::unique_ptr<Norm> final_layernorm_;  // with the head, or with the layers for further tokens
  std::unique_ptr<GptMtp> mtp_;
  std::unique_ptr<Parameter> output_weight_;  // null if tied on this rank
};

}  // namespace megatron
