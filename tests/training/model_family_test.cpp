// A family of models that training knows by ModelFamily alone.
#include "megatron/models/model_family.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <mutex>

#include "megatron/comm/threads/rank_threads.h"
#include "megatron/core/copy.h"
#include "megatron/training/config/layouts.h"
#include "megatron/training/loss_sum.h"
#include "megatron/training/planning/step_plan.h"
#include "megatron/training/training_reporter.h"
#include "tests/models/toy_family.h"
#include "tests/testing/tolerance.h"
#include "tests/training/checkpoint/checkpoint_session.h"

namespace megatron::testing {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kSequence = 16;
constexpr int kNumSteps = 4;
const std::string kWords = " --fp64 --num-layers 4 --lr 1e-3 --global-batch-size 4 --micro-batch-size 1 ";

PretrainConfig toy_config(const std::string& words, int num_ranks = 1) {
  PretrainConfig config = small_config(gpt2_like(kWords + words), num_ranks);
  config.family = toy_family();
  return config;
}

/// This data-parallel rank's samples of a global batch of 4: micro-batch m of all ranks before micro-batch m + 1.
std::vector<OwnedBatch> step_batches(int step, const ProcessGroup& dp) {
  std::vector<OwnedBatch> batches;
  for (int64_t sample = dp.rank(); sample < 4; sample += dp.size())
    batches.push_back(toy_batch(4 * step + sample, 1, kSequence));
  return batches;
}

struct Trained {
  LossSum evaluation;  // of the first batch, before the first step
  std::vector<TrainStepResult> steps;
  std::map<std::string, std::vector<double>> weights;
};

void train_toy(Trainer& trainer, Trained& trained) {
  trained.evaluation = sum_of_all_ranks(trainer.evaluate(step_batches(0, trainer.groups().dp)), trainer.groups());
  for (int step = 0; step < kNumSteps; ++step)
    trained.steps.push_back(trainer.train_step(step_batches(step, trainer.groups().dp)));
  trainer.finish_param_sync();
  for (const Parameter* parameter : trainer.model().parameters())
    trained.weights[parameter->name()] = read_values<double>(trainer.device(), parameter->value());
}

/// On ranks that are threads. @return what each rank has.
std::vector<Trained> train_ranks(const PretrainConfig& config, int num_ranks) {
  std::vector<Trained> ranks(static_cast<size_t>(num_ranks));
  ThreadWorld world_of_all(num_ranks, std::chrono::minutes(5));
  run_rank_threads(world_of_all, [&](World& world) {
    Trainer trainer(config, {.groups = ProcessGroupCollection::make(world, parallel_layout_of(config))});
    train_toy(trainer, ranks[static_cast<size_t>(world.rank())]);
  });
  return ranks;
}

Trained train_one() {
  Trainer trainer(toy_config(""), {});
  Trained trained;
  train_toy(trainer, trained);
  return trained;
}

void expect_near(double actual, double expected, const std::string& what) {
  EXPECT_NEAR(actual, expected, tolerance(DType::kFloat64, 1000, expected)) << what;
}

TEST(ModelFamily, TrainsOnPipelineAndDataParallelRanksAsOnOne) {
  const Trained one = train_one();
  EXPECT_LT(one.steps.back().loss.mean(), one.steps.front().loss.mean());
  for (const char* words : {"--pipeline-model-parallel-size 2",
                            "--pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 1 "
                            "--use-distributed-optimizer"})
    for (const Trained& rank : train_ranks(toy_config(words, 4), 4)) {
      ASSERT_EQ(rank.steps.size(), one.steps.size());
      for (size_t loss = 0; loss < 2; ++loss)
        expect_near(rank.evaluation.of_each.at(loss), one.evaluation.of_each.at(loss), "evaluated loss");
      for (size_t i = 0; i < one.steps.size(); ++i) {
        expect_near(rank.steps[i].loss.sum, one.steps[i].loss.sum, "loss");
        expect_near(rank.steps[i].optimizer.grad_norm, one.steps[i].optimizer.grad_norm, "gradient norm");
        EXPECT_EQ(rank.steps[i].loss.num_tokens, one.steps[i].loss.num_tokens);
        for (const StepMetric& metric : one.steps[i].metrics)
          expect_near(value_of(rank.steps[i].metrics, metric.name), metric.values[0], metric.name);
      }
      for (const auto& [name, values] : rank.weights)
        for (size_t k = 0; k < values.size(); ++k)
          ASSERT_NEAR(values[k], one.weights.at(name)[k], tolerance(DType::kFloat64, 100000)) << name;
    }
}

TEST(ModelFamily, ReportsEveryLossAndMetricAndTrainsTheirSum) {
  for (const TrainStepResult& step : train_one().steps) {
    const double words = value_of(step.metrics, "word loss"), kinds = value_of(step.metrics, "kind loss");
    EXPECT_GT(words, 0);
    EXPECT_GT(kinds, 0);
    EXPECT_EQ(step.loss.sum, words + kinds);
    EXPECT_EQ(value_of(step.metrics, "kind loss again"), kinds) << "the same sum in the same order";
    EXPECT_EQ(value_of(step.metrics, kNumValidTokens), static_cast<double>(step.loss.num_tokens));
  }
}

TEST(ModelFamily, EvaluatesEachLossOfItsOwn) {
  const Trained trained = train_one();
  const std::vector<StepMetric>& first = trained.steps.front().metrics;
  const LossSum& evaluation = trained.evaluation;
  ASSERT_EQ(evaluation.of_each.size(), 2U);
  expect_near(evaluation.of_each[0], value_of(first, "word loss"), "word loss");
  expect_near(evaluation.of_each[1], value_of(first, "kind loss"), "kind loss");
  EXPECT_EQ(evaluation.sum, evaluation.of_each[0] + evaluation.of_each[1]);
  EXPECT_EQ(evaluation.num_tokens, trained.steps.front().loss.num_tokens);
}

TEST(ModelFamily, ReportsEachLossOfAnEvaluationByItsName) {
  const ScratchDirectory directory;
  Trainer trainer(
      toy_config(" --tensorboard-dir " + directory.file("events") + " --log-jsonl " + directory.file("numbers.jsonl")),
      {});
  PosixFileSystem files;
  std::string printed;
  ProgressBar progress({}, [&](std::string_view text) { printed += text; });
  Timers timers(0);
  TrainingReporter reporter(trainer.config(), {.files = files, .progress = progress}, timers);
  reporter.validation(trainer, "", "iteration 1", loss_sum_of({8, 4}, 2));
  EXPECT_THAT(printed, HasSubstr("| word loss value: 4.000000E+00 |"));
  EXPECT_THAT(printed, HasSubstr("| kind loss value: 2.000000E+00 |"));
  EXPECT_THAT(read_file(files, directory.file("numbers.jsonl")),
              HasSubstr("\"validation_word_loss\":4.0,\"validation_kind_loss\":2.0"));
  std::string events;
  for (const auto& file : std::filesystem::directory_iterator(directory.file("events")))
    events += read_file(files, file.path().string());
  EXPECT_THAT(events, HasSubstr("word loss validation"));
  EXPECT_THAT(events, HasSubstr("kind loss validation"));
}

TEST(ModelFamily, LoadsItsCheckpointsBitForBit) {
  const ScratchDirectory directory;
  Trained straight;
  {
    Session run(toy_config(saving(directory)));
    train_toy(run.trainer, straight);
    run.checkpointer.save(run.trainer);
  }
  Session run(toy_config(loading(directory)));
  ASSERT_TRUE(run.checkpointer.load(run.trainer));
  for (const Parameter* parameter : run.trainer.model().parameters())
    EXPECT_EQ(read_values<double>(run.trainer.device(), parameter->value()), straight.weights.at(parameter->name()))
        << parameter->name();
}

TEST(ModelFamily, PlansItsStepsOnBatchesOfItsOwn) {
  const StepPlan plan = plan_steps(toy_config(""), 0, DeviceKind::kCpu, {});
  EXPECT_GT(plan.memory.peak, 0);
}

}  // namespace
}  // namespace megatron::testing
