#include "megatron/transformer/decoder_layer.h"

#include <gtest/gtest.h>

#include "megatron/transformer/key_value_cache.h"
#include "megatron/transformer/transformer_layer.h"
#include "tests/testing/test_device.h"

namespace megatron::testing {
namespace {

constexpr int64_t kRows = 5, kSamples = 2;

TransformerConfig small_config() {
  TransformerConfig config;
  config.num_layers = 2;
  config.hidden_size = 12;
  config.ffn_hidden_size = 20;
  config.num_attention_heads = 3;
  config.num_query_groups = 3;
  config.kv_channels = 4;
  config.params_dtype = DType::kFloat64;
  config.position_embedding_type = PositionEmbeddingType::kNone;
  return config;
}

/// A layer with its weights and gradients, and a forward and backward of it.
struct LayerRun {
  explicit LayerRun(const TransformerConfig& config)
      : layer({.ctx = ctx, .config = config, .groups = groups, .path = "decoder.layers.0"}, 1) {
    for (Parameter* parameter : layer.parameters()) {
      parameter->initialize(ctx);
      parameter->set_main_grad(ctx.empty("gradient", parameter->shape(), DType::kFloat64, MemoryUse::kGradients));
      parameter->begin_step();
    }
  }

  /// The output, the gradient of the input, and those of all weights.
  std::vector<std::vector<double>> values(const std::function<Tensor(Context&, const Tensor&, const LayerInputs&)>& f) {
    Tape tape(test.device);
    ctx.tape = &tape;
    ctx.mode = GradMode::kRecord;
    Tensor x = ctx.empty("x", {kRows, kSamples, 12}, DType::kFloat64), dy = ctx.empty_like("dy", x);
    fill_uniform(ctx, x, "x");
    fill_uniform(ctx, dy, "dy");
    tape.watch(x);
    const Tensor y = f(ctx, x, {.layout = layout, .rows = layout.view().rows});
    std::vector<std::vector<double>> all{values_of(y)};
    tape.seed(ctx, y.slot, dy);
    tape.backward(ctx, Phase::kBW, 0);
    all.push_back(values_of(tape.take_gradient(x.slot)));
    for (Parameter* parameter : layer.parameters()) all.push_back(values_of(parameter->main_grad()));
    return all;
  }

  TestDevice test{DeviceKind::kCpu, 1};
  Context ctx = test.context();
  ProcessGroupCollection groups = ProcessGroupCollection::single();
  SequenceLayout layout = SequenceLayout::uniform(ctx, {.s = kRows, .b = kSamples});
  TransformerLayer layer;
};

Tensor run_parts(const std::vector<LayerPart>& parts, Context& ctx, const Tensor& x, const LayerInputs& inputs) {
  Payload now{{"hidden", x}};
  for (const LayerPart& part : parts) now = part.forward(ctx, now, inputs);
  return at(now, "hidden");
}

TEST(LayerPart, PartsInOrderAreTheLayerBitForBit) {
  for (const bool recomputes : {false, true}) {
    TransformerConfig config = small_config();
    if (recomputes) {
      config.recompute_granularity = RecomputeGranularity::kSelective;
      config.recompute_modules = {RecomputeModule::kLayerNorm, RecomputeModule::kMlp, RecomputeModule::kCoreAttn};
    }
    LayerRun whole(config), in_parts(config);
    EXPECT_EQ(whole.values([&](Context& ctx, const Tensor& x, const LayerInputs& inputs) {
      return whole.layer.forward(ctx, x, inputs);
    }),
              in_parts.values([&](Context& ctx, const Tensor& x, const LayerInputs& inputs) {
                return run_parts(in_parts.layer.parts(), ctx, x, inputs);
              }));
  }
}

TEST(LayerPart, EachParameterOfALayerIsInOnePart) {
  const LayerRun run(small_config());
  std::vector<std::string> names;
  std::vector<Parameter*> parameters;
  for (const LayerPart& part : run.layer.parts()) {
    names.push_back(part.name);
    parameters.insert(parameters.end(), part.parameters.begin(), part.parameters.end());
  }
  EXPECT_EQ(names, (std::vector<std::string>{"self_attention", "mlp"}));
  EXPECT_EQ(parameters, run.layer.parameters());
}

/// A layer that names no parts and keeps the number of tokens that it has seen.
struct CountingLayer : DecoderLayer {
  struct Count : LayerState {
    int64_t tokens = 0;
  };
  Tensor forward(Context&, const Tensor& hidden, const LayerInputs& inputs) const override {
    if (inputs.state) state_as<Count>(*inputs.state).tokens += hidden.size(0);
    return hidden;
  }
  std::unique_ptr<LayerState> make_state(const Context&, const LayerStateSizes&) const override {
    return std::make_unique<Count>();
  }
};

TEST(LayerPart, ALayerWithoutPartsIsOne) {
  LayerRun run(small_config());
  const CountingLayer layer;
  const std::vector<LayerPart> parts = layer.parts();
  ASSERT_EQ(parts.size(), 1);
  const Tensor x = run.ctx.empty("x", {kRows, kSamples, 12}, DType::kFloat64);
  const LayerInputs inputs{.layout = run.layout, .rows = run.layout.view().rows};
  EXPECT_EQ(run_parts(parts, run.ctx, x, inputs).view().data, x.view().data);
}

TEST(LayerState, IsOfTheKindOfLayerThatMadeIt) {
  const LayerRun run(small_config());
  Context ctx = run.ctx;
  const CountingLayer counting;
  const std::unique_ptr<LayerState> count = counting.make_state(ctx, {}),
                                    cache = run.layer.make_state(ctx, {.max_rows = kRows, .b = kSamples});
  Tensor x = ctx.empty("x", {kRows, kSamples, 12}, DType::kFloat64);
  fill_uniform(ctx, x, "x");
  LayerInputs inputs{.layout = run.layout, .rows = run.layout.view().rows, .state = count.get()};
  counting.forward(ctx, x, inputs);
  EXPECT_EQ(state_as<CountingLayer::Count>(*count).tokens, kRows);
  EXPECT_THROW(run.layer.forward(ctx, x, inputs), InternalError);
  inputs.state = cache.get();
  run.layer.forward(ctx, x, inputs);
  EXPECT_EQ(state_as<KeyValueCache>(*cache).num_rows(), kRows);
}

}  // namespace
}  // namespace megatron::testing
