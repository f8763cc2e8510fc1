#include "tests/models/toy_family.h"

#include "megatron/kernels/elementwise.h"
#include "megatron/ops/activation.h"
#include "megatron/ops/add.h"
#include "megatron/ops/linear.h"
#include "megatron/ops/masked_sum.h"
#include "megatron/tensor_parallel/lm_head_loss.h"
#include "megatron/tensor_parallel/vocab_parallel_embedding.h"

namespace megatron::testing {
namespace {

constexpr int64_t kNumWords = 61;

ParameterOptions weight_of(const ModuleContext& context, const std::string& name, int64_t rows) {
  const TransformerConfig& config = context.config;
  return {.name = name,
          .shard = ShardSpec::whole({rows, config.hidden_size}),
          .dtype = config.params_dtype,
          .place = context.groups.shard_place(),
          .init_std = config.init_method_std};
}

/// Embedding, residual layers gelu(W x), and two heads: those of them that are the stage's.
class ToyStage : public Module {
 public:
  ToyStage(const ModuleContext& context, const StageLayers& layers, const ToyOptions& options)
      : num_kinds_(options.num_kinds) {
    const TransformerConfig& config = context.config;
    if (layers.has_embedding)
      register_module(embedding_, std::make_unique<VocabParallelEmbedding>(
                                      context.ctx,
                                      VocabParallelEmbeddingOptions{.name = "words",
                                                                    .vocab_size = kNumWords,
                                                                    .padded_vocab_size = config.padded_vocab_size,
                                                                    .hidden_size = config.hidden_size,
                                                                    .dtype = config.params_dtype},
                                      context.groups.tp));
    layers_.resize(static_cast<size_t>(layers.num_layers));
    for (size_t i = 0; i < layers_.size(); ++i) {
      const int64_t number = layers.first_layer + static_cast<int64_t>(i);
      register_parameter(layers_[i], context.ctx,
                         weight_of(context, fmt::format("block{}.weight", number), config.hidden_size));
    }
    if (!layers.has_head) return;
    register_parameter(word_head_, context.ctx, weight_of(context, "word_head.weight", kNumWords));
    register_parameter(kind_head_, context.ctx, weight_of(context, "kind_head.weight", num_kinds_));
  }

  Chunk segments(const Batches& batches) const {
    Chunk chunk;
    if (embedding_)
      chunk.push_back(
          {"words", embedding_->parameters(), [this, batches](Context& ctx, const Payload&, int m) {
             const Tensor& words = batches(m).tensor("words");
             return Payload{{"hidden", embedding_->forward(ctx, words, nullptr, batches(m).layout("words"))}};
           }});
    for (const std::unique_ptr<Parameter>& layer : layers_)
      chunk.push_back({"block", {layer.get()}, [&weight = *layer](Context& ctx, const Payload& in, int) {
                         const Tensor& x = at(in, "hidden");
                         const Tensor y =
                             activation(ctx, linear(ctx, x, weight, nullptr), nullptr, kernels::Activation::kGelu);
                         return Payload{{"hidden", add(ctx, x, y)}};
                       }});
    if (word_head_)
      chunk.push_back(
          {"heads", {word_head_.get(), kind_head_.get()}, [this, batches](Context& ctx, const Payload& in, int m) {
             return heads(ctx, at(in, "hidden"), batches(m));
           }});
    return chunk;
  }

 private:
  Payload heads(Context& ctx, const Tensor& hidden, const Batch& batch) const {
    const auto loss = [&](Parameter& weight, std::string_view labels, int64_t num_classes) {
      const Tensor losses = lm_head_loss(ctx, hidden, weight, batch.tensor(labels), {.vocab_size = num_classes});
      return masked_sum(ctx, losses, batch.tensor("mask"), batch.tensor("loss_weight"));
    };
    const Tensor words = loss(*word_head_, "next words", kNumWords), kinds = loss(*kind_head_, "kinds", num_kinds_);
    Tensor count = batch.tensor("kind loss again");
    launch(ctx, [&](auto& stream) { kernels::accumulate(stream, {.x = kinds.view(), .y = count.view()}); });
    return {{"kind loss", kinds}, {"word loss", words}};
  }

  int64_t num_kinds_;
  std::unique_ptr<VocabParallelEmbedding> embedding_;
  std::vector<std::unique_ptr<Parameter>> layers_;
  std::unique_ptr<Parameter> word_head_, kind_head_;
};

class ToyModel : public Model {
 public:
  ToyModel(const ModuleContext& context, const PipelineLayout& layout, const ToyOptions& options)
      : config_(context.config), metric_groups_{context.groups.pp, context.groups.dp_cp} {
    stages_.resize(static_cast<size_t>(layout.placement().num_chunks()));
    for (size_t chunk = 0; chunk < stages_.size(); ++chunk)
      register_module(
          stages_[chunk],
          std::make_unique<ToyStage>(
              context, layout.at({.rank = context.groups.pp.rank(), .chunk = static_cast<int>(chunk)}), options));
  }

  const TransformerConfig& config() const override { return config_; }
  std::vector<std::vector<Parameter*>> stage_parameters() const override {
    std::vector<std::vector<Parameter*>> all;
    for (const auto& stage : stages_) all.push_back(stage->parameters());
    return all;
  }
  std::vector<Chunk> chunks(const Batches& batches) const override {
    std::vector<Chunk> chunks;
    for (const auto& stage : stages_) chunks.push_back(stage->segments(batches));
    return chunks;
  }
  std::vector<PayloadSpec> border_payload(int, const Batch& batch) const override {
    const SequenceLayout& layout = batch.layout("words");
    return {{.name = "hidden", .shape = {layout.s(), layout.b(), config_.hidden_size}, .dtype = config_.params_dtype}};
  }
  std::vector<std::string> losses() const override { return {"word loss", "kind loss"}; }
  std::vector<MetricSpec> metrics() const override { return {{.name = "kind loss again", .groups = metric_groups_}}; }

 private:
  TransformerConfig config_;
  std::vector<ProcessGroup> metric_groups_;
  std::vector<std::unique_ptr<ToyStage>> stages_;
};

void describe(ToyOptions& options, FieldTable& table) {
  table.begin_group("Toy", "What a toy tells of each word.");
  table.add("toy_num_kinds", options.num_kinds, "kinds of words")
      .at_least(2)
      .at_most(kNumWords)
      .gives_weights_meaning();
}

/// The kind of a word is the remainder of its number.
OwnedBatch batch_of(const MicroBatch<int64_t>& samples, const ToyOptions& options) {
  std::vector<int64_t> words, next_words;
  std::vector<int32_t> kinds;
  for (const int64_t token : samples.tokens) {
    words.push_back(token % kNumWords);
    kinds.push_back(static_cast<int32_t>(words.back() % options.num_kinds));
  }
  for (const int64_t label : samples.labels) next_words.push_back(label % kNumWords);
  return {.num_samples = samples.num_samples,
          .sequence_length = samples.sequence_length,
          .num_valid_tokens = samples.num_valid_tokens,
          .tensors = {{"words", words}, {"next words", next_words}, {"kinds", kinds}, {"mask", samples.loss_mask}},
          .sequences = {{.name = "words",
                         .length = samples.sequence_length,
                         .cuts = {},
                         .cut_ends = std::vector<int64_t>(static_cast<size_t>(samples.num_samples)),
                         .position_ids = {}}}};
}

}  // namespace

OwnedBatch toy_batch(int64_t first_sample, int64_t num_samples, int64_t sequence_length) {
  std::vector<int64_t> words, next_words;
  std::vector<int32_t> kinds;
  std::vector<float> mask;
  OwnedBatch batch{.num_samples = num_samples, .sequence_length = sequence_length};
  for (int64_t sample = first_sample; sample < first_sample + num_samples; ++sample)
    for (int64_t i = 0; i < sequence_length; ++i) {
      words.push_back((7 * sample + i) % kNumWords);
      next_words.push_back((7 * sample + i + 1) % kNumWords);
      kinds.push_back(static_cast<int32_t>((sample + i) % ToyOptions{}.num_kinds));
      mask.push_back((sample + 3 * i) % 5 == 0 ? 0.0F : 1.0F);
      batch.num_valid_tokens += mask.back() != 0;
    }
  batch.tensors = {{"words", words}, {"next words", next_words}, {"kinds", kinds}, {"mask", mask}};
  batch.sequences = {{.name = "words",
                      .length = sequence_length,
                      .cuts = {},
                      .cut_ends = std::vector<int64_t>(static_cast<size_t>(num_samples)),
                      .position_ids = {}}};
  return batch;
}

ModelFamily toy_family() {
  return {.name = "toy",
          .description = "a toy",
          .make_model =
              [](const ModuleContext& context, const PipelineLayout& layout, const FamilyOptions& options) {
                return std::make_unique<ToyModel>(context, layout, options.as<ToyOptions>());
              },
          .blank_batch = [](int64_t b, int64_t s, const FamilyOptions&) { return toy_batch(0, b, s); },
          .make_batch = [](const MicroBatch<int64_t>& samples,
                           const FamilyOptions& options) { return batch_of(samples, options.as<ToyOptions>()); },
          .options = FamilyOptions(ToyOptions{}, describe)};
}

}  // namespace megatron::testing
