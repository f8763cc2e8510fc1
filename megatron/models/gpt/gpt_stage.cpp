#include "megatron/models/gpt/gpt_stage.h"

#include <algorithm>
#include <utility>

#include "megatron/kernels/elementwise.h"
#include "megatron/ops/add.h"
#include "megatron/ops/masked_sum.h"
#include "megatron/ops/soft_cap.h"
#include "megatron/tensor_parallel/linear.h"
#include "megatron/tensor_parallel/mappings.h"
#include "megatron/tensor_parallel/sequence_rows.h"
#include "megatron/transformer/attention.h"
#include "megatron/transformer/layer_plan.h"

namespace megatron {
namespace {

/// Adds to the accumulator of this name, if the batch has one.
void add_to_metric(const Context& ctx, const Tensor& value, std::string_view name, const Batch& batch) {
  Tensor sum = batch.optional_tensor(name);
  if (!sum.defined() || !ctx.is_first_run()) return;
  launch(ctx, {.name = "accumulate"},
         [&](auto& stream) { kernels::accumulate(stream, {.x = value.view(), .y = sum.view()}); });
}

}  // namespace

GptStage::GptStage(const ModuleContext& context, const StageLayers& layers, const LayerSpec& layer_spec,
                   const RopeTables& rope, const TiedCopy& words, const GptEmbedding* embedding)
    : config_(context.config),
      tensor_group_(context.groups.tp),
      sequence_parallel_(context.sequence_parallel),
      stage_(layers),
      rope_(rope),
      tied_(nullptr) {
  if (stage_.has_embedding || (stage_.num_mtp_layers > 0 && !embedding)) {
    register_module(embedding_, std::make_unique<GptEmbedding>(context.at("embedding"), words));
    embedding = embedding_.get();
  }
  const bool stacks_layers = LayerPlan(config_).stacks_layers();
  layers_.resize(static_cast<size_t>(stage_.num_layers));
  for (size_t i = 0; i < layers_.size(); ++i) {
    const int64_t number = stage_.first_layer + static_cast<int64_t>(i);
    const ModuleContext layer =
        stacks_layers ? context.layer("decoder.layers", number) : context.at(fmt::format("decoder.layers.{}", number));
    register_module(layers_[i], layer_spec(layer, number + 1));
  }
  if (predicts_further_tokens() ? stage_.num_mtp_layers > 0 : stage_.has_head)
    register_module(final_layernorm_, std::make_unique<Norm>(context.at("decoder.final_layernorm"), config_.hidden_size,
                                                             NormPlace::kResidualStream));
  if (stage_.num_mtp_layers > 0) register_module(mtp_, std::make_unique<GptMtp>(context, layer_spec, *embedding));
  if (!stage_.has_head) return;
  if (embedding && config_.share_embeddings_and_output_weights) tied_ = &embedding->word_embeddings();
  if (!tied_) register_output_weight(context, words);
}

void GptStage::register_output_weight(const ModuleContext& context, const TiedCopy& words) {
  const bool is_tied = config_.share_embeddings_and_output_weights;
  ShardSpec shard = ShardSpec::cut_by({config_.padded_vocab_size, config_.hidden_size},
                                      {.sections = {{config_.padded_vocab_size, false}}});
  shard.unpadded_rows = config_.vocab_size;
  ParameterOptions weight =
      context.at(is_tied ? "embedding.word_embeddings" : "output_layer").parameter("weight", std::move(shard));
  if (is_tied) weight.tied = words;
  weight.is_embedding_or_output = true;
  weight.init_std = is_tied ? config_.embedding_init_method_std : config_.init_method_std;
  register_parameter(output_weight_, context.ctx, std::move(weight));
}

Tensor GptStage::embed(Context& ctx, const Tensor& tokens, const SequenceLayout& layout) const {
  const PlaceScope place(ctx, "embedding");
  return embedding_->forward(ctx, tokens, layout);
}

LayerInputs GptStage::inputs_of(const SequenceLayout& layout) const {
  return {.layout = layout,
          .rows = sequence_rows(layout, tensor_group_, sequence_parallel_).rows,
          .rope = rope_.of_whole_sequence(),
          .state = nullptr};
}

LayerInputs GptStage::inputs_of(const Batch& batch) const {
  LayerInputs inputs = inputs_of(batch.layout(gpt_batch::kTokens));
  inputs.step = batch.tensors;
  return inputs;
}

const RopeTable* GptStage::rope_of(size_t index) const {
  return rope_.of_layer(config_, stage_.first_layer + static_cast<int64_t>(index) + 1);
}

std::vector<MoeLayer*> GptStage::experts() const {
  std::vector<MoeLayer*> experts;
  for (const auto& layer : layers_)
    if (MoeLayer* own = layer->experts()) experts.push_back(own);
  if (mtp_)
    for (MoeLayer* own : mtp_->experts()) experts.push_back(own);
  return experts;
}

std::vector<ScaledRows> GptStage::clipped_rows(std::span<const double> max_logits) const {
  const QkClip clip{.threshold = config_.qk_clip_threshold, .alpha = config_.qk_clip_alpha};
  const auto num_heads = static_cast<size_t>(config_.num_attention_heads);
  std::vector<ScaledRows> rows;
  for (size_t i = 0; i < layers_.size(); ++i) {
    const Attention* attention = layers_[i]->attention();
    if (!attention) continue;
    const size_t layer = static_cast<size_t>(stage_.first_layer) + i;
    for (const ScaledRows& own : attention->clipped_rows(max_logits.subspan(layer * num_heads, num_heads), clip))
      rows.push_back(own);
  }
  return rows;
}

Tensor GptStage::decode(Context& ctx, Tensor hidden, const Batch& batch) const {
  return decode_range(ctx, std::move(hidden), 0, layers_.size(), batch);
}

Tensor GptStage::infer(Context& ctx, const Tensor& input, const SequenceLayout& layout,
                       std::span<const std::unique_ptr<LayerState>> states) const {
  Tensor hidden = stage_.has_embedding ? embed(ctx, input, layout) : input;
  LayerInputs inputs = inputs_of(layout);
  for (size_t i = 0; i < layers_.size(); ++i) {
    if (!states.empty()) inputs.state = states[i].get();
    inputs.rope = rope_of(i);
    hidden = layers_[i]->forward(ctx, hidden, inputs);
  }
  if (stage_.has_head) return head_logits(ctx, hidden);
  return final_layernorm_ ? final_layernorm_->forward(ctx, hidden) : hidden;
}

LayerStates GptStage::make_states(const Context& ctx, const LayerStateSizes& sizes) const {
  LayerStates states;
  for (const auto& layer : layers_) states.push_back(layer->make_state(ctx, sizes));
  return states;
}

Tensor GptStage::decode_range(Context& ctx, Tensor hidden, size_t first, size_t end, const Batch& batch) const {
  LayerInputs inputs = inputs_of(batch);
  for (size_t i = first; i < end; ++i) {
    inputs.rope = rope_of(i);
    hidden = layers_[i]->forward(ctx, hidden, inputs);
  }
  return hidden;
}

Tensor GptStage::head_losses(Context& ctx, const Tensor& hidden, const Tensor& labels) const {
  const PlaceScope place(ctx, "output_layer");
  return losses_of(ctx, final_layernorm_->forward(ctx, hidden), labels);
}

Tensor GptStage::head_input(Context& ctx, const Tensor& normed) const {
  return scale(ctx, normed, config_.logits_multiplier);
}

Tensor GptStage::losses_of(Context& ctx, const Tensor& normed, const Tensor& labels) const {
  return lm_head_loss(ctx, head_input(ctx, normed), output_weight(), labels,
                      {.vocab_size = config_.vocab_size,
                       .soft_cap = config_.final_logit_softcapping.value_or(0),
                       .group = tensor_group_,
                       .sequence_parallel = sequence_parallel_});
}

Tensor GptStage::head_logits(Context& ctx, const Tensor& hidden) const {
  const PlaceScope place(ctx, "output_layer");
  const Tensor normed = final_layernorm_ ? final_layernorm_->forward(ctx, hidden) : hidden;
  const Tensor part = linear_with_communication(
      ctx, head_input(ctx, normed), output_weight(), nullptr, tensor_group_,
      {.kind = sequence_parallel_ ? LinearCommunication::kGatherInput : LinearCommunication::kCopyInput});
  const Tensor logits = gather_from_tensor_model_parallel_region(ctx, part, tensor_group_);
  const std::optional<double>& cap = config_.final_logit_softcapping;
  return cap ? soft_cap(ctx, logits, *cap) : logits;
}

Chunk GptStage::segments(const Batches& batches) const {
  Chunk chunk;
  if (stage_.has_embedding)
    chunk.push_back(
        {.name = "embedding",
         .parameters = embedding_->parameters(),
         .forward = [this, batches](Context& ctx, const Payload&, int m) {
           const Batch& batch = batches(m);
           return Payload{{"hidden", embed(ctx, batch.tensor(gpt_batch::kTokens), batch.layout(gpt_batch::kTokens))}};
         }});
  append_layers(batches, chunk);
  if (mtp_) append_further_tokens(batches, chunk);
  if (stage_.has_head) chunk.push_back(head_segment(batches));
  if (chunk.empty())  // a stage without layers passes its input on
    chunk.push_back(
        {.name = "nothing", .parameters = {}, .forward = [](Context&, const Payload& in, int) { return in; }});
  return chunk;
}

void GptStage::append_layers(const Batches& batches, Chunk& chunk) const {
  const bool is_full = config_.recompute_granularity == RecomputeGranularity::kFull;
  const bool is_uniform = is_full && config_.recompute_method == RecomputeMethod::kUniform;
  const auto unit = static_cast<size_t>(is_uniform ? config_.recompute_num_layers : 1);
  for (size_t first = 0; first < layers_.size(); first += unit) {
    if (is_uniform || (is_full && static_cast<int64_t>(first) < config_.recompute_num_layers))
      chunk.push_back(recomputed_segment(batches, first, std::min(first + unit, layers_.size())));
    else
      append_parts(batches, first, chunk);
  }
}

void GptStage::append_parts(const Batches& batches, size_t layer, Chunk& chunk) const {
  const OffloadChoice whole_layer{.offloads = stage_.first_layer + static_cast<int64_t>(layer) <
                                              config_.cpu_offloading_num_layers};
  for (LayerPart& part : layers_[layer]->parts())
    chunk.push_back({.name = fmt::format("layer {} {}", stage_.first_layer + static_cast<int64_t>(layer), part.name),
                     .parameters = std::move(part.parameters),
                     .forward =
                         [this, batches, layer, whole_layer, forward = std::move(part.forward)](
                             Context& ctx, const Payload& in, int m) {
                           const OffloadScope scope(ctx, whole_layer);
                           LayerInputs inputs = inputs_of(batches(m));
                           inputs.rope = rope_of(layer);
                           return forward(ctx, in, inputs);
                         },
                     .offloads = config_.offloads_activations()});
}

Segment GptStage::recomputed_segment(const Batches& batches, size_t first, size_t end) const {
  const int64_t offset = stage_.first_layer;
  Segment segment{.name = fmt::format("layers {}..{}", offset + static_cast<int64_t>(first),
                                      offset + static_cast<int64_t>(end) - 1),
                  .parameters = {},
                  .forward =
                      [this, batches, first, end](Context& ctx, const Payload& in, int m) {
                        return Payload{{"hidden", decode_range(ctx, at(in, "hidden"), first, end, batches(m))}};
                      },
                  .recompute = true};
  for (size_t i = first; i < end; ++i)
    for (Parameter* parameter : layers_[i]->parameters()) segment.parameters.push_back(parameter);
  return segment;
}

void GptStage::append_further_tokens(const Batches& batches, Chunk& chunk) const {
  chunk.push_back({.name = "final norm",
                   .parameters = final_layernorm_->parameters(),
                   .forward = [this](Context& ctx, const Payload& in, int) {
                     return Payload{{"hidden", final_layernorm_->forward(ctx, at(in, "hidden"))}};
                   }});
  const auto inputs = [this](const Batch& batch) { return inputs_of(batch); };
  for (Segment& segment : mtp_->segments(batches, inputs)) chunk.push_back(std::move(segment));
}

Segment GptStage::head_segment(const Batches& batches) const {
  Segment head{.name = "head", .parameters = {}, .forward = {}};
  if (!predicts_further_tokens()) head.parameters = final_layernorm_->parameters();
  head.parameters.push_back(&output_weight());
  head.forward = [this, batches](Context& ctx, const Payload& in, int m) {
    const Batch& batch = batches(m);
    const Tensor &hidden = at(in, "hidden"), &labels = batch.tensor(gpt_batch::kLabels);
    const Tensor losses = predicts_further_tokens() ? losses_of(ctx, hidden, labels) : head_losses(ctx, hidden, labels);
    const Tensor loss =
        masked_sum(ctx, losses, batch.tensor(gpt_batch::kLossMask), batch.optional_tensor(gpt_batch::kLossWeight));
    return Payload{{std::string(kLoss), with_further_losses(ctx, loss, in, batch)}};
  };
  return head;
}

Tensor GptStage::with_further_losses(Context& ctx, const Tensor& loss, const Payload& in, const Batch& batch) const {
  if (!ctx.is_training()) return loss;
  const PlaceScope place(ctx, "mtp");
  const double factor = config_.mtp.loss_scaling_factor / static_cast<double>(config_.mtp.num_layers);
  // The means are over the tokens of all context-parallel ranks.
  const Tensor of_all = batch.optional_tensor(whole_name(gpt_batch::kLossMask));
  const Tensor mask = of_all.defined() ? of_all : batch.tensor(gpt_batch::kLossMask);
  Tensor result = loss;
  for (int64_t depth = 1; depth <= config_.mtp.num_layers; ++depth) {
    const Tensor part = further_values(ctx, batch, gpt_batch::kLossMask, depth);
    const Tensor labels = further_values(ctx, batch, gpt_batch::kLabels, depth);
    const Tensor losses = losses_of(ctx, at(in, mtp_hidden_name(depth)), labels);
    const Tensor part_of_all = batch.optional_tensor(whole_name(further_name(gpt_batch::kLossMask, depth)));
    const MeanLossWeights weights = mean_loss_weights(ctx, mask, part_of_all.defined() ? part_of_all : part,
                                                      batch.optional_tensor(gpt_batch::kLossWeight));
    add_to_metric(ctx, masked_sum(ctx, losses.detach(), part, weights.mean), mtp_loss_name(depth), batch);
    result = attach_loss(ctx, result, masked_sum(ctx, losses, part, weights.share), factor);
  }
  return result;
}

}  // namespace megatron
