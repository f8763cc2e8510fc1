#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "megatron/datasets/micro_batch.h"
#include "megatron/training/train_step.h"
#include "tests/models/gpt/golden_case.h"
#include "tests/testing/golden_json.h"
#include "tests/testing/test_device.h"
#include "tests/testing/tolerance.h"

namespace megatron {
namespace {

using Json = nlohmann::json;
using testing::GoldenTensors;

OptimizerConfig optimizer_config_of(const Json& json, DType dtype) {
  OptimizerConfig config;
  config.lr = json["lr"].get<double>();
  config.min_lr = json["min_lr"];
  config.weight_decay = json["weight_decay"];
  config.adam_beta1 = json["adam_beta1"];
  config.adam_beta2 = json["adam_beta2"];
  config.adam_eps = json["adam_eps"];
  config.clip_grad = json["clip_grad"];
  config.params_dtype = dtype;
  return config;
}

ParamSchedulerConfig scheduler_config_of(const Json& json) {
  ParamSchedulerConfig config;
  config.init_lr = json["init_lr"];
  config.max_lr = json["max_lr"];
  config.min_lr = json["min_lr"];
  config.lr_warmup_steps = json["lr_warmup_steps"];
  config.lr_decay_steps = json["lr_decay_steps"];
  config.lr_decay_style = LrDecayStyle::kCosine;
  config.start_wd = json["start_wd"];
  config.end_wd = json["end_wd"];
  config.wd_incr_steps = json["wd_incr_steps"];
  return config;
}

/// A model of training.json with everything that steps it.
struct GoldenTraining {
  GoldenTraining(const Json& test, DType dtype)
      : test(test), data("training/training.safetensors"), scheduler(scheduler_config_of(test["schedule"])) {
    const Json of_model = testing::golden_model(test["model"]);
    TransformerConfig config = testing::golden_config(of_model["config"], of_model["model"], of_model["yarn"]);
    config.params_dtype = dtype;
    model = std::make_unique<GptModel>(
        ModuleContext{.ctx = ctx, .config = config, .groups = ProcessGroupCollection::single(), .path = ""});
    const GoldenTensors weights("training/" + of_model["file"].get<std::string>());
    for (Parameter* parameter : model->parameters())
      testing::store(weights.values("param/" + parameter->name()), parameter->value());
    ddp = std::make_unique<DistributedDataParallel>(ctx, std::vector<std::vector<Parameter*>>{model->parameters()},
                                                    ProcessGroupCollection::single(), DistributedDataParallelConfig{});
    optimizer = std::make_unique<Optimizer>(ctx, optimizer_config_of(test["optimizer"], dtype), *ddp);
    step = std::make_unique<TrainStep>(ctx, *model, *ddp, *optimizer, nullptr,
                                       TrainStepOptions{.calculate_per_token_loss = false});
  }

  std::vector<MicroBatch<int64_t>> batches(size_t number) const {
    std::vector<MicroBatch<int64_t>> result(test["microbatches"].get<size_t>());
    for (size_t m = 0; m < result.size(); ++m) {
      const std::string prefix = fmt::format("{}/{}/{}/", test["model"].get<std::string>(), number, m);
      MicroBatch<int64_t>& batch = result[m];
      batch.tokens = data.integers(prefix + "tokens");
      batch.labels = data.integers(prefix + "labels");
      for (int64_t mask : data.integers(prefix + "loss_mask")) {
        batch.loss_mask.push_back(static_cast<float>(mask));
        batch.num_valid_tokens += mask;
      }
      batch.num_samples = data.shape(prefix + "tokens")[0];
      batch.sequence_length = data.shape(prefix + "tokens")[1];
      batch.cut_ends.assign(static_cast<size_t>(batch.num_samples), 0);
    }
    return result;
  }

  TrainStepResult run(const std::vector<MicroBatch<int64_t>>& batches, size_t number) {
    const TrainStepResult result = step->run(batches, scheduler, static_cast<int64_t>(number), nullptr);
    scheduler.step(test["microbatches"].get<int64_t>());
    return result;
  }

  testing::TestDevice device{DeviceKind::kCpu, 1};
  Context ctx = device.context();
  Json test;
  GoldenTensors data;
  ParamScheduler scheduler;
  std::unique_ptr<GptModel> model;
  std::unique_ptr<DistributedDataParallel> ddp;
  std::unique_ptr<Optimizer> optimizer;
  std::unique_ptr<TrainStep> step;
};

void for_each_training(const std::function<void(const Json&)>& function) {
  const Json cases = testing::golden_json("training/training.json", "cases");
  ASSERT_FALSE(cases.empty());
  for (const Json& test : cases) {
    SCOPED_TRACE(test["model"].get<std::string>());
    function(test);
  }
}

TEST(OptimizerGroups, AreMegatrons) {
  for_each_training([](const Json& test) {
    const GoldenTraining training(test, DType::kFloat32);
    const auto& groups = training.optimizer->groups();
    ASSERT_EQ(groups.size(), test["groups"].size());
    for (size_t g = 0; g < groups.size(); ++g) {
      EXPECT_EQ(groups[g].schedule.wd_mult, test["groups"][g]["wd_mult"].get<double>());
      std::vector<std::string> names;
      for (size_t member : groups[g].members) names.push_back(training.optimizer->states()[member].parameter->name());
      EXPECT_EQ(names, test["groups"][g]["params"].get<std::vector<std::string>>());
    }
  });
}

/// [sum, L2 norm]
std::pair<double, double> summary_of(const Parameter& parameter) {
  double sum = 0, squares = 0;
  for (double value : testing::values_of(parameter.value())) {
    sum += value;
    squares += value * value;
  }
  return {sum, std::sqrt(squares)};
}

/// Without rotation softmax does not see a key's bias: its gradient is 0 but for rounding, and Adam, which looks at
/// signs, may move each of these elements by the learning rate either way in each step. @return how many there are.
int64_t num_undetermined(const Parameter& parameter, const TransformerConfig& config) {
  const bool has_key_bias = parameter.name().ends_with("linear_qkv.bias");
  const bool rotates = config.position_embedding_type == PositionEmbeddingType::kRope;
  return has_key_bias && !rotates ? config.num_query_groups * config.kv_channels : 0;
}

/// Each step rounds each of the elements, which are of size `norm` / sqrt(their number).
void expect_summary(const Parameter& parameter, const Json& expected, size_t num_steps, double undetermined) {
  const int64_t n = parameter.shape().num_elements();
  const double norm = expected[1], size = norm / std::sqrt(static_cast<double>(n));
  const double bound =
      testing::tolerance(DType::kFloat32, static_cast<int64_t>(num_steps + 1) * n, size) + undetermined;
  const auto [actual_sum, actual_norm] = summary_of(parameter);
  EXPECT_NEAR(actual_sum, expected[0].get<double>(), bound) << parameter.name();
  EXPECT_NEAR(actual_norm, norm, bound) << parameter.name();
}

class TrainingGolden : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Precisions, TrainingGolden, ::testing::Values(DType::kFloat32, DType::kFloat64),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST_P(TrainingGolden, EveryStepIsMegatrons) {
  for_each_training([](const Json& test) {
    GoldenTraining training(test, GetParam());
    for (const Parameter* parameter : training.model->parameters())
      expect_summary(*parameter, test["first"].at(parameter->name()), 0, 0);
    double sum_of_rates = 0;
    ASSERT_FALSE(test["steps"].empty());
    for (size_t number = 0; number < test["steps"].size(); ++number) {
      const Json& expected = test["steps"][number];
      SCOPED_TRACE(fmt::format("step {}", number));
      sum_of_rates += training.scheduler.lr({});
      EXPECT_DOUBLE_EQ(training.scheduler.lr({}), expected["lr"].get<double>());
      const auto batches = training.batches(number);
      const int64_t s = batches[0].sequence_length, b = batches[0].num_samples;
      const TransformerConfig& config = training.model->config();
      const TrainStepResult result = training.run(batches, number);
      const double loss = expected["loss"], norm = expected["grad_norm"];
      const int64_t forward = testing::length_there(config, s) + config.vocab_size;
      EXPECT_NEAR(result.loss.mean(), loss, testing::tolerance(DType::kFloat32, forward, loss));
      EXPECT_NEAR(result.optimizer.grad_norm, norm,
                  testing::tolerance(DType::kFloat32, testing::length_there_and_back(config, s, b), norm));
    }
    for (const Parameter* parameter : training.model->parameters()) {
      const auto undetermined = static_cast<double>(num_undetermined(*parameter, training.model->config()));
      expect_summary(*parameter, test["last"].at(parameter->name()), test["steps"].size(), undetermined * sum_of_rates);
    }
  });
}

}  // namespace
}  // namespace megatron
