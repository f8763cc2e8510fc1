#include "megatron/models/gpt/gpt_stage.h"

#include <algorithm>
#include <utility>

#include "megatron/ops/masked_sum.h"
#include "megatron/tensor_parallel/linear.h"
#include "megatron/tensor_parallel/mappings.h"
#include "megatron/tensor_parallel/sequence_rows.h"
#include "megatron/transformer/layer_plan.h"

namespace megatron {

GptStage::GptStage(const ModuleContext& context, const StageLayers& layers, const LayerSpec& layer_spec,
                   const RopeTable* rope, const TiedCopy& words, Parameter* tied)
    : config_(context.config),
      tensor_group_(context.groups.tp),
      sequence_parallel_(context.sequence_parallel),
      stage_(layers),
      rope_(rope),
      tied_(tied) {
  if (stage_.has_embedding) register_module(embedding_, std::make_unique<GptEmbedding>(context.at("embedding"), words));
  const bool stacks_layers = LayerPlan(config_).stacks_layers();
  layers_.resize(static_cast<size_t>(stage_.num_layers));
  for (size_t i = 0; i < layers_.size(); ++i) {
    const int64_t number = stage_.first_layer + static_cast<int64_t>(i);
    const ModuleContext layer =
        stacks_layers ? context.layer("decoder.layers", number) : context.at(fmt::format("decoder.layers.{}", number));
    register_module(layers_[i], layer_spec(layer, number + 1));
  }
  if (!stage_.has_head) return;
  register_module(final_layernorm_, std::make_unique<Norm>(context.at("decoder.final_layernorm"), config_.hidden_size,
                                                           NormPlace::kResidualStream));
  if (embedding_ && config_.share_embeddings_and_output_weights) tied_ = &embedding_->word_embeddings();
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
          .rope = rope_,
          .state = nullptr};
}

LayerInputs GptStage::inputs_of(const Batch& batch) const {
  LayerInputs inputs = inputs_of(batch.layout(gpt_batch::kTokens));
  inputs.step = batch.tensors;
  return inputs;
}

std::vector<TopKRouter*> GptStage::routers() const {
  std::vector<TopKRouter*> routers;
  for (const auto& layer : layers_)
    if (TopKRouter* router = layer->router()) routers.push_back(router);
  return routers;
}

Tensor GptStage::decode(Context& ctx, Tensor hidden, const Batch& batch) const {
  return decode_range(ctx, std::move(hidden), 0, layers_.size(), batch);
}

Tensor GptStage::decode(Context& ctx, Tensor hidden, const SequenceLayout& layout, const LayerStates* states) const {
  LayerInputs inputs = inputs_of(layout);
  for (size_t i = 0; i < layers_.size(); ++i) {
    if (states) inputs.state = (*states)[i].get();
    hidden = layers_[i]->forward(ctx, hidden, inputs);
  }
  return hidden;
}

LayerStates GptStage::make_states(const Context& ctx, const LayerStateSizes& sizes) const {
  LayerStates states;
  for (const auto& layer : layers_) states.push_back(layer->make_state(ctx, sizes));
  return states;
}

Tensor GptStage::decode_range(Context& ctx, Tensor hidden, size_t first, size_t end, const Batch& batch) const {
  const LayerInputs inputs = inputs_of(batch);
  for (size_t i = first; i < end; ++i) hidden = layers_[i]->forward(ctx, hidden, inputs);
  return hidden;
}

Tensor GptStage::head_losses(Context& ctx, const Tensor& hidden, const Tensor& labels) const {
  const PlaceScope place(ctx, "output_layer");
  return lm_head_loss(
      ctx, final_layernorm_->forward(ctx, hidden), output_weight(), labels,
      {.vocab_size = config_.vocab_size, .group = tensor_group_, .sequence_parallel = sequence_parallel_});
}

Tensor GptStage::head_logits(Context& ctx, const Tensor& hidden) const {
  const PlaceScope place(ctx, "output_layer");
  const Tensor part = linear_with_communication(
      ctx, final_layernorm_->forward(ctx, hidden), output_weight(), nullptr, tensor_group_,
      {.kind = sequence_parallel_ ? LinearCommunication::kGatherInput : LinearCommunication::kCopyInput});
  return gather_from_tensor_model_parallel_region(ctx, part, tensor_group_);
}

Chunk GptStage::segments(const Batches& batches) const {
  Chunk chunk;
  if (embedding_)
    chunk.push_back(
        {.name = "embedding",
         .parameters = embedding_->parameters(),
         .forward = [this, batches](Context& ctx, const Payload&, int m) {
           const Batch& batch = batches(m);
           return Payload{{"hidden", embed(ctx, batch.tensor(gpt_batch::kTokens), batch.layout(gpt_batch::kTokens))}};
         }});
  append_layers(batches, chunk);
  if (stage_.has_head) chunk.push_back(head_segment(batches));
  if (chunk.empty())  // a stage without layers hands on what it gets
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
  for (LayerPart& part : layers_[layer]->parts())
    chunk.push_back(
        {.name = fmt::format("layer {} {}", stage_.first_layer + static_cast<int64_t>(layer), part.name),
         .parameters = std::move(part.parameters),
         .forward = [this, batches, forward = std::move(part.forward)](Context& ctx, const Payload& in, int m) {
           return forward(ctx, in, inputs_of(batches(m)));
         }});
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

Segment GptStage::head_segment(const Batches& batches) const {
  Segment head{.name = "head", .parameters = final_layernorm_->parameters(), .forward = {}};
  head.parameters.push_back(&output_weight());
  head.forward = [this, batches](Context& ctx, const Payload& in, int m) {
    const Batch& batch = batches(m);
    const Tensor losses = head_losses(ctx, at(in, "hidden"), batch.tensor(gpt_batch::kLabels));
    return Payload{{std::string(kLoss), masked_sum(ctx, losses, batch.tensor(gpt_batch::kLossMask),
                                                   batch.optional_tensor(gpt_batch::kLossWeight))}};
  };
  return head;
}

}  // namespace megatron
