#include "megatron/models/gpt/gpt_model.h"

#include <algorithm>

#include "megatron/ops/masked_sum.h"
#include "megatron/tensor_parallel/linear.h"
#include "megatron/tensor_parallel/mappings.h"
#include "megatron/tensor_parallel/sequence_rows.h"
#include "megatron/transformer/rotary_embedding.h"

namespace megatron {

GptModel::GptModel(const ModuleContext& context)
    : config_(context.config),
      tensor_group_(context.groups.tp),
      sequence_parallel_(context.sequence_parallel),
      rope_(make_rope_table(context.ctx, context.config, context.config.max_sequence_length)) {
  require<NotSupported>(context.groups.pp.size() == 1,
                        "[GptModel] pipeline parallel size {}: this version builds a GPT on one pipeline stage.",
                        context.groups.pp.size());
  register_module(embedding_, std::make_unique<GptEmbedding>(context.at("embedding")));
  layers_.resize(static_cast<size_t>(config_.num_layers));
  for (size_t i = 0; i < layers_.size(); ++i) {
    const ModuleContext layer = context.at(fmt::format("decoder.layers.{}", i));
    register_module(layers_[i], std::make_unique<TransformerLayer>(layer, static_cast<int64_t>(i) + 1));
  }
  register_module(final_layernorm_, std::make_unique<Norm>(context.at("decoder.final_layernorm"), config_.hidden_size,
                                                           NormPlace::kResidualStream));
  if (config_.share_embeddings_and_output_weights) return;
  ShardSpec shard = ShardSpec::whole({config_.padded_vocab_size, config_.hidden_size});
  shard.unpadded_rows = config_.vocab_size;
  shard.cut = ShardCut{.sections = {{config_.padded_vocab_size, false}}};
  register_parameter(output_weight_, context.ctx,
                     {.name = context.at("output_layer.weight").path,
                      .shard = shard,
                      .dtype = config_.params_dtype,
                      .shard_rank = tensor_group_.rank(),
                      .num_shards = tensor_group_.size(),
                      .is_embedding_or_output = true,
                      .init_std = config_.init_method_std});
}

void GptModel::initialize(const Context& ctx) {
  for (Parameter* parameter : parameters()) parameter->initialize(ctx);
}

Parameter& GptModel::output_weight() const { return output_weight_ ? *output_weight_ : embedding_->word_embeddings(); }

LayerInputs GptModel::inputs_of(const SequenceLayout& layout) const {
  return {.layout = layout,
          .rows = sequence_rows(layout, tensor_group_, sequence_parallel_).rows,
          .rope = rope_ ? &*rope_ : nullptr,
          .cache = nullptr};
}

Tensor GptModel::decode(Context& ctx, Tensor hidden, size_t first, size_t end, const LayerInputs& inputs) const {
  for (size_t i = first; i < end; ++i) hidden = layers_[i]->forward(ctx, hidden, inputs);
  return hidden;
}

Tensor GptModel::head_loss(Context& ctx, const Tensor& hidden, const GptMicroBatch& batch) const {
  return lm_head_loss(
      ctx, final_layernorm_->forward(ctx, hidden), output_weight(), batch.labels,
      {.vocab_size = config_.vocab_size, .group = tensor_group_, .sequence_parallel = sequence_parallel_});
}

Tensor GptModel::token_losses(Context& ctx, const GptMicroBatch& batch) const {
  const Tensor hidden =
      decode(ctx, embedding_->forward(ctx, batch.tokens, batch.layout), 0, layers_.size(), inputs_of(batch.layout));
  return head_loss(ctx, hidden, batch);
}

Tensor GptModel::loss(Context& ctx, const GptMicroBatch& batch) const {
  return masked_sum(ctx, token_losses(ctx, batch), batch.loss_mask, batch.loss_weight);
}

Tensor GptModel::logits(Context& ctx, const Tensor& tokens, const SequenceLayout& layout,
                        std::vector<KeyValueCache>* caches) const {
  LayerInputs inputs = inputs_of(layout);
  Tensor hidden = embedding_->forward(ctx, tokens, layout);
  for (size_t i = 0; i < layers_.size(); ++i) {
    inputs.cache = caches ? &caches->at(i) : nullptr;
    hidden = layers_[i]->forward(ctx, hidden, inputs);
  }
  const Tensor part = linear_with_communication(
      ctx, final_layernorm_->forward(ctx, hidden), output_weight(), nullptr, tensor_group_,
      sequence_parallel_ ? LinearCommunication::kGatherInput : LinearCommunication::kCopyInput);
  return gather_from_tensor_model_parallel_region(ctx, part, tensor_group_);
}

std::vector<KeyValueCache> GptModel::make_caches(const Context& ctx, int64_t max_rows, int64_t b) const {
  std::vector<KeyValueCache> caches;
  const Shape shape = {max_rows, b, SelfAttention::num_local_groups(config_, tensor_group_), config_.kv_channels};
  for (size_t i = 0; i < layers_.size(); ++i) caches.emplace_back(ctx, shape, config_.params_dtype);
  return caches;
}

Chunk GptModel::segments(const GptMicroBatches& batches) const {
  Chunk chunk;
  chunk.push_back({.name = "embedding",
                   .parameters = embedding_->parameters(),
                   .forward = [this, batches](Context& ctx, const Payload&, int m) {
                     const GptMicroBatch& batch = batches(m);
                     return Payload{{"hidden", embedding_->forward(ctx, batch.tokens, batch.layout)}};
                   }});
  const bool is_full = config_.recompute_granularity == RecomputeGranularity::kFull;
  const bool is_uniform = is_full && config_.recompute_method == RecomputeMethod::kUniform;
  const auto unit = static_cast<size_t>(is_uniform ? config_.recompute_num_layers : 1);
  for (size_t first = 0; first < layers_.size(); first += unit) {
    const size_t end = std::min(first + unit, layers_.size());
    Segment segment{.name = fmt::format("layers {}..{}", first, end - 1), .parameters = {}, .forward = {}};
    for (size_t i = first; i < end; ++i)
      for (Parameter* parameter : layers_[i]->parameters()) segment.parameters.push_back(parameter);
    segment.forward = [this, batches, first, end](Context& ctx, const Payload& in, int m) {
      return Payload{{"hidden", decode(ctx, at(in, "hidden"), first, end, inputs_of(batches(m).layout))}};
    };
    segment.recompute = is_uniform || (is_full && static_cast<int64_t>(first) < config_.recompute_num_layers);
    chunk.push_back(std::move(segment));
  }
  Segment head{.name = "head", .parameters = final_layernorm_->parameters(), .forward = {}};
  head.parameters.push_back(&output_weight());
  head.forward = [this, batches](Context& ctx, const Payload& in, int m) {
    const GptMicroBatch& batch = batches(m);
    return Payload{
        {"loss", masked_sum(ctx, head_loss(ctx, at(in, "hidden"), batch), batch.loss_mask, batch.loss_weight)}};
  };
  chunk.push_back(std::move(head));
  return chunk;
}

}  // namespace megatron
