// Mixture-of-experts models against Megatron Core: logits, losses, auxiliary losses and every gradient.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "megatron/core/copy.h"
#include "megatron/distributed/param_and_grad_buffer.h"
#include "tests/models/gpt/golden_case.h"
#include "tests/testing/golden_json.h"
#include "tests/testing/golden_moe.h"
#include "tests/testing/test_device.h"
#include "tests/testing/tolerance.h"

namespace megatron {
namespace {

using Json = nlohmann::json;
using testing::GoldenTensors;

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
    MoeConfig moe = testing::take_moe_config(transformer);
    if (transformer.contains("moe_layer_freq"))
      moe.layer_freq = {.interval = 0, .per_layer = transformer["moe_layer_freq"].get<std::vector<int64_t>>()};
    transformer.erase("moe_layer_freq");
    config = testing::golden_config(transformer, test["model"], test["yarn"]);
    config.params_dtype = dtype;
    if (moe.ffn_hidden_size == 0) moe.ffn_hidden_size = config.ffn_hidden_size;
    config.moe = moe;
    model = std::make_unique<GptModel>(
        ModuleContext{.ctx = ctx, .config = config, .groups = ProcessGroupCollection::single(), .path = ""});
    buffer = std::make_unique<ParamAndGradBuffer>(ctx, model->parameters(), dtype);
    for (Parameter* parameter : model->parameters())
      testing::store(golden_values(tensors, parameter->is_trainable() ? "param/" : "buffer/", parameter->name()),
                     parameter->value());
    batch = testing::golden_batch(ctx, tensors);
    for (const MetricSpec& spec : model->metrics()) {
      Tensor sums = ctx.empty(spec.name, {spec.size}, spec.dtype, MemoryUse::kData);
      fill_zero(ctx.device, sums.data<double>(), sums.bytes());
      batch.tensors.push_back({spec.name, sums});
    }
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
    model->begin_step(ctx);
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
  TransformerConfig config;
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
    EXPECT_EQ(golden.model->metrics().size(), test["aux"].size());
    for (const auto& [name, values] : test["aux"].items())
      expect_near(testing::values_of(golden.batch.tensor(name)), values.get<std::vector<double>>(),
                  golden.length_there(), name);
    for (Parameter* parameter : golden.buffer->parameters())
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
    for (const Parameter* parameter : golden.buffer->parameters()) actual.push_back(parameter->name());
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
