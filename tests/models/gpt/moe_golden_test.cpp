// Mixture-of-experts models against Megatron Core: logits, losses, auxiliary losses and every gradient.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "megatron/distributed/param_and_grad_buffer.h"
#include "megatron/ops/bias_dropout_add.h"
#include "megatron/transformer/moe/moe_layer.h"
#include "megatron/transformer/multi_latent_attention.h"
#include "megatron/transformer/self_attention.h"
#include "megatron/transformer/transformer_layer.h"
#include "tests/models/gpt/golden_case.h"
#include "tests/testing/golden_json.h"
#include "tests/testing/golden_moe.h"
#include "tests/testing/test_device.h"
#include "tests/testing/tolerance.h"

namespace megatron {
namespace {

using Json = nlohmann::json;
using testing::GoldenTensors;

std::unique_ptr<Attention> make_attention(const ModuleContext& context, int64_t layer_number) {
  if (context.config.mla) return std::make_unique<MultiLatentAttention>(context, layer_number);
  return std::make_unique<SelfAttention>(context, layer_number);
}

/// A pre-norm layer whose feed-forward part is a mixture of experts.
class MoeTransformerLayer : public DecoderLayer {
 public:
  MoeTransformerLayer(const ModuleContext& context, int64_t layer_number, const MoeConfig& moe,
                      std::vector<std::vector<AuxiliaryLoss>>& losses)
      : layer_number_(layer_number), losses_(losses) {
    const int64_t h = context.config.hidden_size;
    constexpr NormPlace kStream = NormPlace::kResidualStream;
    register_module(input_layernorm_, std::make_unique<Norm>(context.at("input_layernorm"), h, kStream));
    register_module(self_attention_, make_attention(context.at("self_attention"), layer_number));
    register_module(pre_mlp_layernorm_, std::make_unique<Norm>(context.at("pre_mlp_layernorm"), h, kStream));
    register_module(moe_, std::make_unique<MoeLayer>(context.at("mlp"), moe));
  }
  Tensor forward(Context& ctx, const Tensor& hidden, const LayerInputs& inputs) const override {
    const BlockOutput attended = self_attention_->forward(ctx, input_layernorm_->forward(ctx, hidden), inputs);
    const Tensor sum = bias_dropout_add(ctx, attended.output, attended.bias, hidden,
                                        {.rate = 0, .path = "attention", .rows = inputs.rows});
    MoeOutput fed = moe_->forward(ctx, pre_mlp_layernorm_->forward(ctx, sum), {});
    losses_[static_cast<size_t>(layer_number_ - 1)] = std::move(fed.losses);
    return bias_dropout_add(ctx, fed.output, nullptr, sum, {.rate = 0, .path = "mlp", .rows = inputs.rows});
  }
  std::unique_ptr<LayerState> make_state(const Context& ctx, const LayerStateSizes& sizes) const override {
    return self_attention_->make_state(ctx, sizes);
  }
  TopKRouter& router() { return moe_->router(); }

 private:
  int64_t layer_number_;
  std::vector<std::vector<AuxiliaryLoss>>& losses_;
  std::unique_ptr<Norm> input_layernorm_, pre_mlp_layernorm_;
  std::unique_ptr<Attention> self_attention_;
  std::unique_ptr<MoeLayer> moe_;
};

/// Values of one of our parameters: Megatron's of that name, or those of all experts one after the other.
std::vector<double> golden_values(const GoldenTensors& tensors, const std::string& kind, const std::string& name) {
  const std::string stacked = ".experts.experts.";
  const size_t place = name.find(stacked);
  if (place == std::string::npos) return tensors.values(kind + name);
  const std::vector<std::string> names = tensors.names();
  std::vector<double> values;
  for (int expert = 0;; ++expert) {
    const std::string one = kind + name.substr(0, place) + fmt::format(".experts.local_experts.{}.", expert) +
                            name.substr(place + stacked.size());
    if (std::find(names.begin(), names.end(), one) == names.end()) return values;
    const std::vector<double> more = tensors.values(one);
    values.insert(values.end(), more.begin(), more.end());
  }
}

double largest(const std::vector<double>& values) {
  double result = 0;
  for (double value : values) result = std::max(result, std::abs(value));
  return result;
}

void expect_near(const std::vector<double>& actual, const std::vector<double>& expected, int64_t length,
                 const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  const double bound = testing::tolerance(DType::kFloat32, length, largest(expected));
  double error = 0;
  for (size_t i = 0; i < actual.size(); ++i)
    error = std::max(error, std::isnan(actual[i]) ? HUGE_VAL : std::abs(actual[i] - expected[i]));
  EXPECT_LE(error, bound) << what;
}

/// A golden model with its weights and batch.
struct Golden {
  Golden(const Json& description, DType dtype)
      : test(description), tensors("training/" + test["file"].get<std::string>()) {
    Json transformer = test["config"];
    moe = testing::take_moe_config(transformer);
    LayerPattern moe_layers{.interval = 1, .per_layer = {}};
    if (transformer.contains("moe_layer_freq"))
      moe_layers.per_layer = transformer["moe_layer_freq"].get<std::vector<int64_t>>();
    transformer.erase("moe_layer_freq");
    config = testing::golden_config(transformer, test["model"], test["yarn"]);
    config.params_dtype = dtype;
    if (moe.ffn_hidden_size == 0) moe.ffn_hidden_size = config.ffn_hidden_size;
    losses.resize(static_cast<size_t>(config.num_layers));
    const LayerSpec spec = [&, moe_layers](const ModuleContext& context,
                                           int64_t number) -> std::unique_ptr<DecoderLayer> {
      if (!moe_layers.per_layer.empty() && moe_layers.per_layer[static_cast<size_t>(number - 1)] == 0)
        return std::make_unique<TransformerLayer>(context, number);
      auto layer = std::make_unique<MoeTransformerLayer>(context, number, moe, losses);
      routers.emplace_back(context.path + ".mlp.router", &layer->router());
      return layer;
    };
    model = std::make_unique<GptModel>(
        ModuleContext{.ctx = ctx, .config = config, .groups = ProcessGroupCollection::single(), .path = ""}, spec);
    buffer = std::make_unique<ParamAndGradBuffer>(ctx, model->parameters(), dtype);
    for (Parameter* parameter : model->parameters())
      testing::store(golden_values(tensors, "param/", parameter->name()), parameter->value());
    for (auto& [path, router] : routers)
      if (moe.enable_expert_bias)
        testing::store(tensors.values("buffer/" + path + ".expert_bias"), router->expert_bias());
    batch = testing::golden_batch(ctx, tensors);
    for (double mask : tensors.values("loss_mask")) num_tokens += mask;
    device.step.loss_seed = 1 / num_tokens;
  }

  /// Forward and backward. @return the mean loss.
  double run() {
    Tape tape(ctx.device);
    Context training = ctx;
    training.tape = &tape;
    training.mode = GradMode::kRecord;
    buffer->begin_step();
    const Tensor loss = model->loss(training, batch);
    Tensor seed = ctx.empty("seed", {1}, DType::kFloat64);
    *seed.data<double>() = device.step.loss_seed;
    tape.seed(training, loss.slot, std::move(seed));
    tape.backward(training, Phase::kBW, 0);
    buffer->finish_step(ctx);
    return *loss.data<double>() / num_tokens;
  }

  int64_t length_there() const { return testing::length_there(config, batch.layout("tokens").s()); }
  int64_t length_there_and_back() const {
    return testing::length_there_and_back(config, batch.layout("tokens").s(), batch.layout("tokens").b());
  }

  testing::TestDevice device{DeviceKind::kCpu, 1};
  Context ctx = device.context();
  Json test;
  GoldenTensors tensors;
  MoeConfig moe;
  TransformerConfig config;
  std::vector<std::vector<AuxiliaryLoss>> losses;  // of each layer
  std::vector<std::pair<std::string, TopKRouter*>> routers;
  std::unique_ptr<GptModel> model;
  std::unique_ptr<ParamAndGradBuffer> buffer;
  Batch batch;
  double num_tokens = 0;
};

/// [s, b, ...] of ours in the order [b, s, ...].
std::vector<double> batch_first(const Tensor& x) {
  const std::vector<double> values = testing::values_of(x);
  const int64_t s = x.size(0), b = x.size(1), row = x.num_elements() / (s * b);
  std::vector<double> result;
  for (int64_t j = 0; j < b; ++j)
    for (int64_t i = 0; i < s; ++i)
      result.insert(result.end(), values.begin() + (i * b + j) * row, values.begin() + (i * b + j + 1) * row);
  return result;
}

/// The six models of experts, one with multi-latent attention and YaRN.
void for_each_model(const std::function<void(const Json&)>& function) {
  int count = 0;
  for (const Json& test : testing::golden_json("training/extra_moe_models.json", "cases")) {
    SCOPED_TRACE(test["name"].get<std::string>());
    function(test);
    ++count;
  }
  EXPECT_EQ(count, 6);
}

class MoeGolden : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Precisions, MoeGolden, ::testing::Values(DType::kFloat32, DType::kFloat64),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST_P(MoeGolden, LogitsAndTokenLossesAreMegatrons) {
  for_each_model([](const Json& test) {
    Golden golden(test, GetParam());
    expect_near(batch_first(golden.model->logits(golden.ctx, golden.batch.tensor("tokens"),
                                                 golden.batch.layout("tokens"), nullptr)),
                golden.tensors.values("logits"), golden.length_there(), "logits");
    expect_near(batch_first(golden.model->token_losses(golden.ctx, golden.batch)), golden.tensors.values("losses"),
                golden.length_there() + golden.config.vocab_size, "losses");
  });
}

TEST_P(MoeGolden, MeanLossAuxiliaryLossesAndEveryGradientAreMegatrons) {
  for_each_model([](const Json& test) {
    Golden golden(test, GetParam());
    const double mean = test["mean_loss"];
    expect_near({golden.run()}, {mean}, golden.length_there() + golden.config.vocab_size, "mean loss");
    for (size_t layer = 0; layer < golden.losses.size(); ++layer)
      for (const AuxiliaryLoss& loss : golden.losses[layer])
        expect_near(testing::values_of(loss.value), {test["aux"][std::string(loss.name)][layer].get<double>()},
                    golden.length_there(), fmt::format("{} of layer {}", loss.name, layer));
    for (const auto& [name, values] : test["aux"].items())
      for (size_t layer = 0; layer < values.size(); ++layer)
        EXPECT_EQ(values[layer].get<double>() != 0,
                  std::any_of(golden.losses[layer].begin(), golden.losses[layer].end(),
                              [&](const AuxiliaryLoss& loss) { return loss.name == name; }))
            << name << " of layer " << layer;
    for (Parameter* parameter : golden.model->parameters())
      expect_near(testing::values_of(parameter->main_grad()), golden_values(golden.tensors, "grad/", parameter->name()),
                  golden.length_there_and_back(), parameter->name());
  });
}

TEST(MoeLayer, RegistersMegatronsParametersInItsOrderWithExpertsStacked) {
  for_each_model([](const Json& test) {
    Golden golden(test, DType::kFloat32);
    std::vector<std::string> expected, actual;
    for (const Json& parameter : test["params"]) {
      std::string name = parameter[0];
      const std::string all = ".experts.local_experts.", first = all + "0.";
      if (const size_t place = name.find(first); place != std::string::npos)
        name.replace(place, first.size(), ".experts.experts.");
      if (name.find(all) == std::string::npos) expected.push_back(name);
    }
    for (const Parameter* parameter : golden.model->parameters()) actual.push_back(parameter->name());
    EXPECT_EQ(actual, expected);
  });
}

TEST(MoeLayer, GivesTheSameBitsTwice) {
  for_each_model([](const Json& test) {
    Golden one(test, DType::kFloat32), two(test, DType::kFloat32);
    EXPECT_EQ(one.run(), two.run());
    EXPECT_EQ(testing::values_of(one.buffer->grads()), testing::values_of(two.buffer->grads()));
  });
}

}  // namespace
}  // namespace megatron
