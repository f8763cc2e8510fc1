#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "megatron/distributed/param_and_grad_buffer.h"
#include "megatron/pipeline_parallel/executor.h"
#include "megatron/pipeline_parallel/schedules/one_f_one_b.h"
#include "tests/models/gpt/golden_case.h"
#include "tests/testing/golden_json.h"
#include "tests/testing/test_device.h"
#include "tests/testing/tolerance.h"

namespace megatron {
namespace {

using Json = nlohmann::json;
using testing::GoldenTensors;

/// A golden model with its weights, batch and gradient buffer.
struct Golden {
  Golden(const Json& description, DType dtype, int64_t num_padding_rows = 0)
      : test(description),
        config(testing::golden_config(test["config"], test["model"], test["yarn"])),
        tensors("training/" + test["file"].get<std::string>()) {
    config.params_dtype = dtype;
    config.padded_vocab_size += num_padding_rows;
    model = std::make_unique<GptModel>(
        ModuleContext{.ctx = ctx, .config = config, .groups = ProcessGroupCollection::single(), .path = ""});
    buffer = std::make_unique<ParamAndGradBuffer>(ctx, model->parameters(), dtype);
    for (Parameter* parameter : model->parameters()) {
      if (num_padding_rows > 0) testing::fill_uniform(ctx, parameter->value(), parameter->name());
      testing::store(tensors.values("param/" + parameter->name()), parameter->value());
    }
    batch = testing::golden_batch(ctx, tensors);
    for (double mask : tensors.values("loss_mask")) num_tokens += mask;
    step.loss_seed = 1 / num_tokens;
  }

  /// Forward and backward by hand. @return the mean loss.
  double run() {
    Tape tape(ctx.device);
    Context training = ctx;
    training.tape = &tape;
    training.mode = GradMode::kRecord;
    buffer->begin_step();
    const Tensor loss = model->loss(training, batch);
    Tensor seed = ctx.empty("seed", {1}, DType::kFloat64);
    *seed.data<double>() = step.loss_seed;
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
  StepState& step = device.step;
  Context ctx = device.context();
  Json test;
  TransformerConfig config;
  GoldenTensors tensors;
  std::unique_ptr<GptModel> model;
  std::unique_ptr<ParamAndGradBuffer> buffer;
  Batch batch;
  double num_tokens = 0;
};

double largest(const std::vector<double>& values) {
  double result = 0;
  for (double value : values) result = std::max(result, std::abs(value));
  return result;
}

/// Every element within the rounding of fp32, in which the reference computes, on sums of `length` terms.
void expect_near(const std::vector<double>& actual, const std::vector<double>& expected, int64_t length,
                 const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  const double bound = testing::tolerance(DType::kFloat32, length, largest(expected));
  double error = 0;
  for (size_t i = 0; i < actual.size(); ++i)
    error = std::max(error, std::isnan(actual[i]) ? HUGE_VAL : std::abs(actual[i] - expected[i]));
  EXPECT_LE(error, bound) << what;
}

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

std::vector<double> gradient_of(Parameter& parameter) { return testing::values_of(parameter.main_grad()); }

void for_each_model(const std::function<void(const Json&)>& function) {
  for (const char* file : {"training/models.json", "training/extra_mla_models.json"}) {
    const Json cases = testing::golden_json(file, "cases");
    ASSERT_FALSE(cases.empty());
    for (const Json& test : cases) {
      SCOPED_TRACE(test["name"].get<std::string>());
      function(test);
    }
  }
}

class GptGolden : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Precisions, GptGolden, ::testing::Values(DType::kFloat32, DType::kFloat64),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST_P(GptGolden, LogitsAndTokenLossesAreMegatrons) {
  for_each_model([](const Json& test) {
    Golden golden(test, GetParam());
    expect_near(batch_first(golden.model->logits(golden.ctx, golden.batch.tensor("tokens"),
                                                 golden.batch.layout("tokens"), nullptr)),
                golden.tensors.values("logits"), golden.length_there(), "logits");
    const int64_t length = golden.length_there() + golden.config.vocab_size;
    expect_near(batch_first(golden.model->token_losses(golden.ctx, golden.batch)), golden.tensors.values("losses"),
                length, "losses");
  });
}

TEST_P(GptGolden, MeanLossAndEveryGradientAreMegatrons) {
  for_each_model([](const Json& test) {
    Golden golden(test, GetParam());
    const double mean = test["mean_loss"];
    expect_near({golden.run()}, {mean}, golden.length_there() + golden.config.vocab_size, "mean loss");
    for (Parameter* parameter : golden.model->parameters())
      expect_near(gradient_of(*parameter), golden.tensors.values("grad/" + parameter->name()),
                  golden.length_there_and_back(), parameter->name());
  });
}

TEST(GptModel, RegistersMegatronsParametersInItsOrder) {
  for_each_model([](const Json& test) {
    Golden golden(test, DType::kFloat32);
    const std::vector<Parameter*> parameters = golden.model->parameters();
    ASSERT_EQ(parameters.size(), test["params"].size());
    for (size_t i = 0; i < parameters.size(); ++i) {
      EXPECT_EQ(parameters[i]->name(), test["params"][i][0].get<std::string>());
      const Shape& shape = parameters[i]->shape();
      EXPECT_EQ(std::vector<int64_t>(shape.begin(), shape.end()), test["params"][i][1].get<std::vector<int64_t>>());
    }
  });
}

TEST(GptModel, RejectsValuesThatNoModelHasAllAtOnce) {
  testing::TestDevice test(DeviceKind::kMeta, 1);
  TransformerConfig config;  // without any size
  config.num_layers = 1;
  config.hidden_size = 8;
  config.num_attention_heads = 3;
  config.num_query_groups = 2;
  config.kv_channels = 4;
  config.vocab_size = 50;
  config.padded_vocab_size = 40;
  config.max_sequence_length = 16;
  config.hidden_dropout = 1.5;
  const ProcessGroupCollection groups = ProcessGroupCollection::single();
  try {
    const GptModel model({.ctx = test.context(), .config = config, .groups = groups, .path = ""});
    ADD_FAILURE() << "was built";
  } catch (const ConfigError& error) {
    for (const char* text : {"ffn_hidden_size is 0; it must be above 0", "num_attention_heads 3 does not divide by",
                             "padded_vocab_size 40 is below vocab_size 50", "hidden_dropout is 1.5"})
      EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
  }
}

TEST(GptModel, SegmentsGiveTheSameBitsAsTheWholeModel) {
  for_each_model([](const Json& test) {
    Golden whole(test, DType::kFloat32), cut(test, DType::kFloat32);
    const double loss = whole.run();
    const auto batch = [&](int) -> const Batch& { return cut.batch; };
    const ExecutorOptions options{.chunks = cut.model->chunks(batch), .losses = cut.model->losses()};
    Executor executor(cut.ctx, options);
    executor.on_output = [&](const Payload& output, int) {
      EXPECT_EQ(*at(output, "lm loss").data<double>() / cut.num_tokens, loss);
    };
    cut.buffer->begin_step();
    executor.run(one_f_one_b(0, 1, 1, WeightGradient::kFused));
    cut.buffer->finish_step(cut.ctx);
    EXPECT_EQ(testing::values_of(cut.buffer->grads()), testing::values_of(whole.buffer->grads()));
  });
}

TEST(GptModel, RowsThatPadTheVocabularyTakeNoPart) {
  for_each_model([](const Json& test) {
    constexpr int64_t kPadding = 7;
    Golden plain(test, DType::kFloat64), padded(test, DType::kFloat64, kPadding);
    const double mean = plain.run();
    EXPECT_NEAR(padded.run(), mean, testing::tolerance(DType::kFloat64, plain.length_there(), mean));
    const std::vector<Parameter*> parameters = plain.model->parameters(), others = padded.model->parameters();
    for (size_t i = 0; i < parameters.size(); ++i) {
      const std::vector<double> expected = gradient_of(*parameters[i]);
      std::vector<double> actual = gradient_of(*others[i]);
      for (size_t k = expected.size(); k < actual.size(); ++k) EXPECT_EQ(actual[k], 0) << others[i]->name();
      actual.resize(expected.size());
      const double bound = testing::tolerance(DType::kFloat64, plain.length_there_and_back(), largest(expected));
      for (size_t k = 0; k < expected.size(); ++k) ASSERT_NEAR(actual[k], expected[k], bound) << others[i]->name();
    }
  });
}

TEST(GptModel, CachedGenerationGivesTheLogitsOfTheWholeSequence) {
  for_each_model([](const Json& test) {
    Golden golden(test, DType::kFloat64);
    const int64_t s = golden.batch.layout("tokens").s(), b = golden.batch.layout("tokens").b(), first = s / 2;
    const std::vector<double> expected = testing::values_of(
        golden.model->logits(golden.ctx, golden.batch.tensor("tokens"), golden.batch.layout("tokens"), nullptr));
    const LayerStates states = golden.model->make_states(golden.ctx, {.max_rows = s, .b = b});
    std::vector<double> actual;
    for (int64_t begin = 0; begin < s; begin += begin == 0 ? first : 1) {  // a prompt, then one token after the other
      const int64_t length = begin == 0 ? first : 1;
      const auto layout = SequenceLayout::uniform(golden.ctx, {.s = length, .b = b, .first_position = begin});
      const Tensor tokens = golden.batch.tensor("tokens").slice(0, begin, length);
      const std::vector<double> logits = testing::values_of(golden.model->logits(golden.ctx, tokens, layout, &states));
      actual.insert(actual.end(), logits.begin(), logits.end());
    }
    ASSERT_EQ(actual.size(), expected.size());
    const double bound = testing::tolerance(DType::kFloat64, golden.length_there(), largest(expected));
    for (size_t i = 0; i < expected.size(); ++i) ASSERT_NEAR(actual[i], expected[i], bound) << "logit " << i;
  });
}

}  // namespace
}  // namespace megatron
