// Models with layers for further tokens against Megatron Core: losses of every depth and every gradient.
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

/// A golden model after a forward and backward pass.
struct Trained {
  Trained(const Json& test, DType dtype, RecomputeGranularity recompute = RecomputeGranularity::kNone)
      : config(testing::golden_config(test["config"], test["model"], test["yarn"])),
        tensors("training/" + test["file"].get<std::string>()) {
    config.params_dtype = dtype;
    config.recompute_granularity = recompute;
    config.recompute_method = RecomputeMethod::kUniform;
    config.recompute_num_layers = 1;
    model = std::make_unique<GptModel>(
        ModuleContext{.ctx = ctx, .config = config, .groups = ProcessGroupCollection::single(), .path = ""});
    buffer = std::make_unique<ParamAndGradBuffer>(ctx, model->parameters(), dtype);
    for (Parameter* parameter : model->parameters())
      testing::store(tensors.values("param/" + parameter->name()), parameter->value());
    batch = testing::golden_batch(ctx, tensors);
    for (const MetricSpec& metric : model->metrics()) {
      Tensor sum = ctx.empty(metric.name, {metric.size}, metric.dtype);
      *sum.data<double>() = 0;
      batch.tensors.push_back({metric.name, sum});
    }
    for (double mask : tensors.values("loss_mask")) num_tokens += mask;
    device.step.loss_seed = 1 / num_tokens;
    run();
  }

  void run() {
    const auto batches = [&](int) -> const Batch& { return batch; };
    const ExecutorOptions options{.chunks = model->chunks(batches), .losses = model->losses()};
    Executor executor(ctx, options);
    executor.on_output = [&](const Payload& output, int) {
      mean_loss = *at(output, GptStage::kLoss).data<double>() / num_tokens;
    };
    buffer->begin_step();
    executor.run(one_f_one_b(0, 1, 1, WeightGradient::kFused));
    buffer->finish_step(ctx);
  }

  int64_t s() const { return batch.layout(gpt_batch::kTokens).s(); }
  int64_t b() const { return batch.layout(gpt_batch::kTokens).b(); }

  testing::TestDevice device{DeviceKind::kCpu, 1};
  Context ctx = device.context();
  TransformerConfig config;
  GoldenTensors tensors;
  std::unique_ptr<GptModel> model;
  std::unique_ptr<ParamAndGradBuffer> buffer;
  Batch batch;
  double num_tokens = 0, mean_loss = 0;
};

void expect_near(const std::vector<double>& actual, const std::vector<double>& expected, int64_t length,
                 const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  double largest = 0, error = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    largest = std::max(largest, std::abs(expected[i]));
    error = std::max(error, std::isnan(actual[i]) ? HUGE_VAL : std::abs(actual[i] - expected[i]));
  }
  EXPECT_LE(error, testing::tolerance(DType::kFloat32, length, largest)) << what;
}

void for_each_model(const std::function<void(const Json&)>& function) {
  const Json cases = testing::golden_json("training/extra_mtp_models.json", "cases");
  ASSERT_EQ(cases.size(), 2U);
  for (const Json& test : cases) {
    SCOPED_TRACE(test["name"].get<std::string>());
    function(test);
  }
}

class MtpGolden : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Precisions, MtpGolden, ::testing::Values(DType::kFloat32, DType::kFloat64),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST_P(MtpGolden, LossesOfEveryDepthAndEveryGradientAreMegatrons) {
  for_each_model([](const Json& test) {
    const Trained trained(test, GetParam());
    const int64_t length = testing::length_there(trained.config, trained.s()) + trained.config.vocab_size;
    expect_near({trained.mean_loss}, {test["mean_loss"].get<double>()}, length, "mean loss");
    for (size_t i = 0; i < test["mtp_losses"].size(); ++i)
      expect_near(testing::values_of(trained.batch.tensor(mtp_loss_name(static_cast<int64_t>(i) + 1))),
                  {test["mtp_losses"][i].get<double>()}, length, mtp_loss_name(static_cast<int64_t>(i) + 1));
    for (Parameter* parameter : trained.model->parameters())
      expect_near(testing::values_of(parameter->main_grad()), trained.tensors.values("grad/" + parameter->name()),
                  testing::length_there_and_back(trained.config, trained.s(), trained.b()), parameter->name());
  });
}

TEST(MultiTokenPrediction, RegistersMegatronsParametersInItsOrder) {
  for_each_model([](const Json& test) {
    const Trained trained(test, DType::kFloat32);
    std::vector<std::string> expected, actual;
    for (const Json& parameter : test["params"]) expected.push_back(parameter[0]);
    for (const Parameter* parameter : trained.model->parameters()) actual.push_back(parameter->name());
    EXPECT_EQ(actual, expected);
  });
}

TEST(MultiTokenPrediction, RecomputeGivesTheSameBits) {
  for_each_model([](const Json& test) {
    const Trained plain(test, DType::kFloat32), recomputed(test, DType::kFloat32, RecomputeGranularity::kFull);
    EXPECT_EQ(recomputed.mean_loss, plain.mean_loss);
    EXPECT_EQ(testing::values_of(recomputed.buffer->grads()), testing::values_of(plain.buffer->grads()));
    EXPECT_EQ(testing::values_of(recomputed.batch.tensor("mtp_1 loss")),
              testing::values_of(plain.batch.tensor("mtp_1 loss")));
  });
}

TEST(MultiTokenPrediction, TokensThatFollowAreThoseOfLaterRowsAndThenZeros) {
  testing::TestDevice device(DeviceKind::kCpu, 1);
  const Context ctx = device.context();
  Tensor tokens = ctx.empty("tokens", {2, 4}, DType::kInt64);
  for (int i = 0; i < 8; ++i) tokens.data<int64_t>()[i] = 10 + i;
  const Tensor shifted = shifted_rows(ctx, tokens.transpose(0, 1), 3);  // two columns of four rows
  EXPECT_EQ(shifted.shape(), (Shape{4, 2}));
  EXPECT_EQ(std::vector<int64_t>(shifted.data<int64_t>(), shifted.data<int64_t>() + 8),
            (std::vector<int64_t>{13, 17, 0, 0, 0, 0, 0, 0}));
  EXPECT_THROW(shifted_rows(ctx, tokens, 3), ShapeError);
}

}  // namespace
}  // namespace megatron
