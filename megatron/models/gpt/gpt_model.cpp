#include "megatron/models/gpt/gpt_model.h"

#include <algorithm>
#include <span>
#include <utility>

#include "megatron/models/model_family.h"
#include "megatron/ops/masked_sum.h"
#include "megatron/transformer/moe/moe_step.h"
#include "megatron/transformer/qk_clip.h"

namespace megatron {
namespace {

const TransformerConfig& validated(const TransformerConfig& config) {
  config.validate();
  return config;
}

int64_t num_mtp_layers(const PipelineLayout& layout) {
  int64_t count = 0;
  for (const StageLayers& stage : layout.stages()) count += stage.num_mtp_layers;
  return count;
}

}  // namespace

GptModel::GptModel(const ModuleContext& context, const LayerSpec& layer_spec)
    : GptModel(context, whole_layout(context.config), layer_spec) {}

GptModel::GptModel(const ModuleContext& context, const PipelineLayout& layout, const LayerSpec& layer_spec)
    : config_(validated(context.config)),
      tensor_group_(context.groups.tp),
      pipeline_group_(context.groups.pp),
      metric_group_(context.groups.tp_dp_cp),
      data_group_(context.groups.dp_cp),
      replica_group_(context.groups.dp),
      sequence_parallel_(context.sequence_parallel),
      replicates_tokens_(context.replicates_tokens),
      placement_(layout.placement()),
      rope_(context.ctx, context.config, context.config.max_sequence_length) {
  const StagePlacement& placement = placement_;
  const int rank = context.groups.pp.rank(), num_ranks = context.groups.pp.size();
  require<ConfigError>(placement.num_ranks() == num_ranks && layout.num_layers() == config_.num_layers,
                       "[GptModel] the layout is of {} layers on {} pipeline ranks; the model has {} layers, the group "
                       "{} ranks.",
                       layout.num_layers(), placement.num_ranks(), config_.num_layers, num_ranks);
  require<ConfigError>(num_mtp_layers(layout) == config_.mtp.num_layers,
                       "[GptModel] the layout has {} layers for further tokens; the model has {}.",
                       num_mtp_layers(layout), config_.mtp.num_layers);
  const bool is_tied = config_.share_embeddings_and_output_weights;
  const TiedCopy words = layout.word_embeddings(is_tied).copy_of(rank);
  const GptEmbedding* embedding = nullptr;
  mtp_stage_ = placement.num_stages();
  for (int stage = placement.num_stages(); stage-- > 0;)
    if (layout.stages()[static_cast<size_t>(stage)].num_mtp_layers > 0) mtp_stage_ = stage;
  stages_.resize(static_cast<size_t>(placement.num_chunks()));
  for (int chunk = 0; chunk < placement.num_chunks(); ++chunk) {
    const StageLayers& layers = layout.at({.rank = rank, .chunk = chunk});
    std::unique_ptr<GptStage>& stage = stages_[static_cast<size_t>(chunk)];
    register_module(stage, std::make_unique<GptStage>(context, layers, layer_spec, rope_, words, embedding));
    if (stage->embedding()) embedding = stage->embedding();
  }
}

std::vector<std::vector<Parameter*>> GptModel::stage_parameters() const {
  std::vector<std::vector<Parameter*>> all;
  for (const auto& stage : stages_) all.push_back(stage->parameters());
  return all;
}

std::vector<MoeLayer*> GptModel::experts() const {
  std::vector<MoeLayer*> all;
  for (const auto& stage : stages_)
    for (MoeLayer* experts : stage->experts()) all.push_back(experts);
  return all;
}

std::vector<MetricSpec> GptModel::metrics() const {
  std::vector<MetricSpec> specs;
  for (int64_t depth = 1; depth <= config_.mtp.num_layers; ++depth)
    specs.push_back({.name = mtp_loss_name(depth), .groups = {pipeline_group_, data_group_}});
  if (config_.finds_max_attention_logits())
    specs.push_back({.name = std::string(kMaxAttentionLogits),
                     .size = config_.num_layers * config_.num_attention_heads,
                     .reduction = MetricReduction::kMax,
                     .groups = {pipeline_group_, metric_group_}});
  if (!config_.moe) return specs;
  const auto add = [&](std::string_view name, int64_t size) {
    specs.push_back({.name = std::string(name), .size = size, .groups = {pipeline_group_, metric_group_}});
  };
  const int64_t num_layers = config_.num_layers + config_.mtp.num_layers;
  for (const std::string_view name : auxiliary_losses(*config_.moe)) add(name, num_layers);
  if (config_.moe->per_layer_logging) add(kTokensPerExpert, num_layers * config_.moe->num_experts);
  return specs;
}

bool GptModel::attaches_losses() const { return config_.moe && !auxiliary_losses(*config_.moe).empty(); }

void GptModel::begin_step(const Context& ctx) const {
  for (MoeLayer* layer : experts()) layer->router().begin_step(ctx);
}

void GptModel::finish_step(const Context& ctx) const {
  for (MoeLayer* layer : experts()) layer->router().finish_step(ctx);
}

std::vector<ScaledRows> GptModel::clipped_rows(std::span<const double> max_logits) const {
  std::vector<ScaledRows> rows;
  if (!config_.qk_clip) return rows;
  for (const auto& stage : stages_)
    for (const ScaledRows& own : stage->clipped_rows(max_logits)) rows.push_back(own);
  return rows;
}

void GptModel::set_bounded(bool is_bounded) const {
  for (MoeLayer* layer : experts()) layer->set_bounded(is_bounded);
}

std::vector<Chunk> GptModel::chunks(const Batches& batches) const {
  std::vector<Chunk> chunks;
  for (const auto& stage : stages_) chunks.push_back(stage->segments(batches));
  return chunks;
}

std::vector<PayloadSpec> GptModel::border_payload(int stage, const Batch& batch) const {
  std::vector<PayloadSpec> specs{hidden_behind(stage, batch.layout(gpt_batch::kTokens))};
  const Shape shape = specs.front().shape;
  for (int64_t depth = 1; stage >= mtp_stage_ && depth <= config_.mtp.num_layers; ++depth)
    specs.push_back({.name = mtp_hidden_name(depth), .shape = shape, .dtype = config_.params_dtype});
  return specs;
}

PayloadSpec GptModel::hidden_behind(int stage, const SequenceLayout& layout) const {
  const int64_t rows = sequence_parallel_ ? layout.s() / tensor_group_.size() : layout.s();
  const bool is_normed = stage >= mtp_stage_;
  const bool is_fp32 = config_.fp32_residual_connection && !is_normed;
  return {.name = "hidden",
          .shape = {rows, layout.b(), config_.hidden_size},
          .dtype = is_fp32 ? DType::kFloat32 : config_.params_dtype};
}

const GptStage& GptModel::whole() const {
  const bool is_whole = stages_.size() == 1 && stages_[0]->layers().has_embedding && stages_[0]->layers().has_head;
  require(is_whole, "[GptModel] this rank has a part of the model: run its chunks on a schedule.");
  return *stages_[0];
}

Tensor GptModel::token_losses(Context& ctx, const Batch& batch) const {
  const SequenceLayout& layout = batch.layout(gpt_batch::kTokens);
  const Tensor embedded = whole().embed(ctx, batch.tensor(gpt_batch::kTokens), layout);
  return whole().head_losses(ctx, whole().decode(ctx, embedded, batch), batch.tensor(gpt_batch::kLabels));
}

Tensor GptModel::loss(Context& ctx, const Batch& batch) const {
  return masked_sum(ctx, token_losses(ctx, batch), batch.tensor(gpt_batch::kLossMask),
                    batch.optional_tensor(gpt_batch::kLossWeight));
}

Tensor GptModel::logits(Context& ctx, const Tensor& tokens, const SequenceLayout& layout,
                        const LayerStates* states) const {
  constexpr int kTag = 0;
  const int rank = pipeline_group_.rank();
  std::span<const std::unique_ptr<LayerState>> left;
  if (states) left = *states;
  Tensor values = tokens;
  for (int chunk = 0; chunk < placement_.num_chunks(); ++chunk) {
    const StagePlace own{.rank = rank, .chunk = chunk};
    const GptStage& part = *stages_[static_cast<size_t>(chunk)];
    const int stage = placement_.stage_of(own);
    if (stage > 0 && placement_.previous(own).rank != rank) {
      const PayloadSpec spec = hidden_behind(stage - 1, layout);
      values = ctx.empty(spec.name, spec.shape, spec.dtype, MemoryUse::kCommunication);
      pipeline_group_.recv(values.view(), placement_.previous(own).rank, kTag, {.site = spec.name}).wait();
    }
    const auto own_states = left.subspan(0, std::min(left.size(), part.num_layers()));
    left = left.subspan(own_states.size());
    values = part.infer(ctx, values, layout, own_states);
    if (!placement_.is_last(own) && placement_.next(own).rank != rank)
      pipeline_group_
          .send(std::as_const(values).view(), placement_.next(own).rank, kTag,
                {.site = "hidden", .keep_alive = KeepAlive::of(values.storage())})
          .wait();
  }
  return shared_logits(ctx, std::move(values), layout);
}

Tensor GptModel::shared_logits(Context& ctx, Tensor logits, const SequenceLayout& layout) const {
  if (const int head = placement_.place_of(placement_.num_stages() - 1).rank; pipeline_group_.size() > 1) {
    if (pipeline_group_.rank() != head)
      logits = ctx.empty("logits", {layout.s(), layout.b(), config_.padded_vocab_size}, config_.params_dtype,
                         MemoryUse::kCommunication);
    pipeline_group_.broadcast(logits.view(), head, {.site = "logits"}).wait();
  }
  // Replicas that differ in the last bit would draw different tokens, and then wait for each other in vain.
  if (replicates_tokens_ && replica_group_.size() > 1)
    replica_group_.broadcast(logits.view(), 0, {.site = "logits of replicas"}).wait();
  return logits;
}

LayerStates GptModel::make_states(const Context& ctx, const LayerStateSizes& sizes) const {
  LayerStates all;
  for (const auto& stage : stages_)
    for (std::unique_ptr<LayerState>& state : stage->make_states(ctx, sizes)) all.push_back(std::move(state));
  return all;
}

}  // namespace megatron
