// A chain of any number of equal layers, to cut over any pipeline: an embedding, layers with norm, dropout and
// residual, and a head with the loss.
#pragma once

#include <memory>
#include <vector>

#include "megatron/ops/activation.h"
#include "megatron/ops/bias_dropout_add.h"
#include "megatron/ops/embedding.h"
#include "megatron/ops/linear.h"
#include "megatron/ops/masked_sum.h"
#include "megatron/ops/rms_norm.h"
#include "megatron/pipeline_parallel/pipeline_layout.h"
#include "megatron/tensor_parallel/lm_head_loss.h"
#include "tests/testing/toy_model.h"

namespace megatron::testing {

struct DeepModelOptions {
  int num_layers = 7;
  bool is_tied = false;  // the head multiplies by the embedding's weight
  bool recompute = false;
};

/// Every rank holds all parameters; a stage's chunk uses its own. Sizes of the toy model, float64.
class DeepModel {
 public:
  DeepModel(const Context& ctx, const DeepModelOptions& options) : options_(options) {
    constexpr int64_t h = ToyModel::kHidden, f = ToyModel::kFfn;
    embedding_ = make(ctx, "embedding", {ToyModel::kPadded, h});
    head_ = options.is_tied ? embedding_ : make(ctx, "head", {ToyModel::kPadded, h});
    final_norm_ = make(ctx, "final_norm", {h});
    for (int i = 0; i < options.num_layers; ++i)
      layers_.push_back({make(ctx, fmt::format("layer{}.norm", i), {h}),
                         make(ctx, fmt::format("layer{}.up", i), {f, h}),
                         make(ctx, fmt::format("layer{}.down", i), {h, f})});
  }

  std::vector<Parameter*> parameters() const {
    std::vector<Parameter*> all;
    for (const auto& p : own_) all.push_back(p.get());
    return all;
  }

  /// The segments of a virtual stage. @param batches must outlive the chunk.
  Chunk stage(const StageLayers& stage, const std::vector<ToyBatch>& batches) const {
    const auto batch = [&batches](int m) -> const ToyBatch& { return batches[static_cast<size_t>(m)]; };
    Chunk chunk;
    if (stage.has_embedding)
      chunk.push_back(
          {"embedding", {embedding_}, [=, this](Context& c, const Payload&, int m) {
             return Payload{{"hidden", embedding(c, batch(m).tokens, *embedding_, 0, nullptr, batch(m).layout)}};
           }});
    for (int64_t i = stage.first_layer; i < stage.first_layer + stage.num_layers; ++i) {
      const Layer& layer = layers_[static_cast<size_t>(i)];
      chunk.push_back({fmt::format("layer{}", i),
                       {layer.norm, layer.up, layer.down},
                       [=, this](Context& c, const Payload& in, int m) { return forward(c, layer, i, in, batch(m)); },
                       options_.recompute});
    }
    if (stage.has_head)
      chunk.push_back({"head", {final_norm_, head_}, [=, this](Context& c, const Payload& in, int m) {
                         const Tensor normed = rms_norm(c, at(in, "hidden"), final_norm_, {});
                         const Tensor losses =
                             lm_head_loss(c, normed, *head_, batch(m).labels, {.vocab_size = ToyModel::kVocabulary});
                         return Payload{{"loss", masked_sum(c, losses, batch(m).loss_mask)}};
                       }});
    return chunk;
  }

  static PayloadSpec border() { return {"hidden", {ToyModel::kSequence, 1, ToyModel::kHidden}, DType::kFloat64}; }

 private:
  struct Layer {
    Parameter *norm, *up, *down;
  };
  Parameter* make(const Context& ctx, const std::string& name, const Shape& shape) {
    own_.push_back(std::make_unique<Parameter>(ctx, ParameterOptions{.name = name,
                                                                     .shard = ShardSpec::whole(shape),
                                                                     .dtype = DType::kFloat64,
                                                                     .is_trainable = true,
                                                                     .init_std = shape.rank() == 1 ? 0 : 0.5,
                                                                     .init_constant = 1}));
    own_.back()->initialize(ctx);
    return own_.back().get();
  }
  static Payload forward(Context& ctx, const Layer& layer, int64_t number, const Payload& in, const ToyBatch& batch) {
    const Tensor& x = at(in, "hidden");
    const Tensor normed = rms_norm(ctx, x, layer.norm, {});
    const Tensor up = activation(ctx, linear(ctx, normed, *layer.up, nullptr), nullptr, kernels::Activation::kGelu);
    const std::string path = fmt::format("layer{}.dropout", number);
    return {{"hidden", bias_dropout_add(ctx, linear(ctx, up, *layer.down, nullptr), nullptr, x,
                                        {.rate = ToyModel::kDropout, .path = path, .rows = batch.layout.rows()})}};
  }

  DeepModelOptions options_;
  std::vector<std::unique_ptr<Parameter>> own_;
  Parameter *embedding_, *head_, *final_norm_;
  std::vector<Layer> layers_;
};

}  // namespace megatron::testing
