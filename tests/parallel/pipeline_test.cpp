// Pipeline stages against one rank.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <mutex>
#include <utility>

#include "tests/parallel/layout_run.h"
#include "tests/testing/test_device.h"
#include "tests/testing/tolerance.h"
#include "tests/training/small_trainer.h"

namespace megatron::testing {
namespace {

const std::string kSeven = " --fp64 --lr 1e-3 --num-layers 7 --global-batch-size 6 --micro-batch-size 1";

/// Layers that do not divide by the stages, and how Megatron's flags share them.
const std::vector<std::pair<int, std::string>> kSplits = {
    {2, " --pipeline-model-parallel-size 2 --account-for-embedding-in-pipeline-split"},
    {2, " --pipeline-model-parallel-size 2 --account-for-loss-in-pipeline-split"},
    {3, " --pipeline-model-parallel-size 3 --decoder-first-pipeline-num-layers 3"},
    {4, " --pipeline-model-parallel-size 4 --decoder-first-pipeline-num-layers 1 --decoder-last-pipeline-num-layers 2"},
    {3, " --pipeline-model-parallel-size 3 --pipeline-model-parallel-layout Et|tt|t*4L"},
    {2, " --pipeline-model-parallel-size 2 --pipeline-model-parallel-layout E|ttt||t*4L"},
    {2, " --pipeline-model-parallel-size 2 --pipeline-model-parallel-layout Et|(tt|)*2ttL --pipeline-schedule zb-v"}};

TEST(Pipeline, GivesTheLossAndTheGradientNormOfOneRank) {
  for (const std::string& model : {gpt2_like(kSeven), llama_like(kSeven)}) {
    const Curve one = train_layout(model, 1, 10);
    for (const auto& [num_ranks, split] : kSplits)
      expect_same_curve(train_layout(model + split, num_ranks, 10), one, split);
  }
}

/// All weights by name; a name that several ranks have must have the same bits on all.
std::map<std::string, std::vector<double>> weights_by_name(const std::string& words, int num_ranks, int64_t num_steps) {
  std::map<std::string, std::vector<double>> weights;
  std::mutex mutex;
  run_layout(words, num_ranks, [&](Trainer& trainer) {
    train(trainer, 0, num_steps);
    const std::lock_guard lock(mutex);
    for (const Parameter* parameter : trainer.model().parameters()) {
      const auto [place, is_new] = weights.emplace(parameter->name(), values_of(parameter->value()));
      EXPECT_EQ(place->second, values_of(parameter->value())) << parameter->name();
    }
  });
  return weights;
}

TEST(Pipeline, HasTheInitialWeightsOfOneRank) {
  for (const std::string& model : {gpt2_like(kSeven), llama_like(kSeven)}) {
    const auto one = weights_by_name(model, 1, 0);
    for (const auto& [num_ranks, split] : kSplits) EXPECT_EQ(weights_by_name(model + split, num_ranks, 0), one);
  }
}

TEST(Pipeline, TiedCopiesStayEqualBitForBit) {
  for (const std::string precision : {"", " --bf16"})
    weights_by_name(gpt2_like(" --num-layers 4 --pipeline-model-parallel-size 2" + precision), 4, 5);
}

TEST(Pipeline, AnOverflowOnOneRankSkipsTheStepOnAll) {
  const std::string words = gpt2_like(
      "--fp16 --initial-loss-scale 1024 --hysteresis 1 --num-layers 4 --micro-batch-size 1 "
      "--pipeline-model-parallel-size 2");
  for (const std::string optimizer : {"", " --use-distributed-optimizer", " --overlap-grad-reduce"})
    run_layout(words + optimizer, 4, [](Trainer& trainer) {
      train(trainer, 0, 1);
      const auto weights = weights_of(trainer), state = optimizer_state_of(trainer);
      Parameter& last = *trainer.model().parameters().back();
      const auto reduce = last.on_ready;
      bool injects = trainer.groups().world.rank() == 3;  // second stage, second replica
      last.on_ready = [&](Parameter& parameter) {
        if (std::exchange(injects, false))
          *parameter.main_grad().data<float>() = std::numeric_limits<float>::infinity();
        reduce(parameter);
      };
      const auto step = [&](int64_t number) {
        return trainer.train_step(batches_of(trainer.config(), number, trainer.groups().dp.rank())).optimizer.success;
      };
      EXPECT_FALSE(step(1));
      EXPECT_EQ(weights_of(trainer), weights);
      EXPECT_EQ(optimizer_state_of(trainer), state);
      EXPECT_EQ(trainer.optimizer().num_steps(), 1);
      EXPECT_EQ(trainer.optimizer().loss_scale(), 512);
      EXPECT_TRUE(step(2));
      EXPECT_NE(weights_of(trainer), weights);
      last.on_ready = reduce;
    });
}

TEST(Pipeline, UntiedAndUnclippedIsOneRankBitForBit) {
  const std::string model = llama_like(" --num-layers 4 --global-batch-size 6 --micro-batch-size 1 --clip-grad 0");
  for (const std::string precision : {"", " --bf16"}) {
    const auto one = weights_by_name(model + precision, 1, 5);
    for (const int num_stages : {2, 4})
      EXPECT_EQ(weights_by_name(model + precision + fmt::format(" --pipeline-model-parallel-size {}", num_stages),
                                num_stages, 5),
                one)
          << num_stages << " stages" << precision;
  }
}

/// Returns the gradients of the first step, by name; those of tied weights are the sum of the stages'.
std::map<std::string, std::vector<double>> gradients_by_name(const std::string& words, int num_ranks) {
  std::map<std::string, std::vector<double>> gradients;
  std::mutex mutex;
  run_layout(words, num_ranks, [&](Trainer& trainer) {
    train(trainer, 0, 1);
    const std::lock_guard lock(mutex);
    for (Parameter* parameter : trainer.model().parameters())
      gradients[parameter->name()] = values_of(parameter->main_grad());
  });
  return gradients;
}

const std::string kTwoStages =
    " --num-layers 4 --global-batch-size 6 --micro-batch-size 1 --clip-grad 0 --pipeline-model-parallel-size 2";
const std::vector<std::string> kZeroBubble = {" --pipeline-schedule zb-h1", " --pipeline-schedule zb-v",
                                              " --pipeline-schedule dualpipe-v"};

TEST(Pipeline, UntiedZeroBubbleGradientsAreThoseOf1F1BBitForBit) {
  for (const std::string precision : {"", " --bf16", " --fp64"}) {
    const auto expected = gradients_by_name(llama_like(kTwoStages + precision), 2);
    for (const std::string& schedule : kZeroBubble)
      EXPECT_EQ(gradients_by_name(llama_like(kTwoStages + precision + schedule), 2), expected) << schedule << precision;
  }
}

TEST(Pipeline, TiedZeroBubbleGradientsAreThoseOf1F1BWithinRoundingOfFp32) {
  const auto expected = gradients_by_name(gpt2_like(kTwoStages), 2);
  for (const std::string& schedule : kZeroBubble)
    for (const auto& [name, values] : gradients_by_name(gpt2_like(kTwoStages + schedule), 2)) {
      if (!name.ends_with("word_embeddings.weight")) {
        EXPECT_EQ(values, expected.at(name)) << name << schedule;
        continue;
      }
      double largest = 0;
      for (const double value : expected.at(name)) largest = std::max(largest, std::abs(value));
      // Six micro-batches give one sum for the embedding and one for the head, added in another order.
      for (size_t i = 0; i < values.size(); ++i)
        EXPECT_NEAR(values[i], expected.at(name)[i], tolerance(DType::kFloat32, 2 * 6, largest)) << name << schedule;
    }
}

TEST(Pipeline, RunsWithFewerMicroBatchesThanStages) {
  const std::string model = gpt2_like(" --fp64 --lr 1e-3 --num-layers 4 --global-batch-size 2 --micro-batch-size ");
  const Curve one = train_layout(model + "2", 1, 3);
  for (const std::string size : {"1", "2"})
    expect_same_curve(train_layout(model + size + " --pipeline-model-parallel-size 4", 4, 3), one, size);
}

TEST(Pipeline, EvaluatesWhatOneRankEvaluates) {
  const std::string words = gpt2_like(" --fp64 --num-layers 4 --global-batch-size 5 --micro-batch-size 1");
  const auto with_short_batch = [](const PretrainConfig& config) {
    auto batches = batches_of(config, 3);
    batches.push_back(batches_of(small_config(gpt2_like("--micro-batch-size 4")), 1).front());
    return batches;
  };
  Trainer one(small_config(words), {});
  const LossSum expected = one.evaluate(with_short_batch(one.config()));
  for (const std::string schedule : {"", " --num-virtual-stages-per-pipeline-rank 2", " --pipeline-schedule zb-v",
                                     " --pipeline-schedule zb-h1", " --pipeline-schedule gpipe"})
    run_layout(words + " --pipeline-model-parallel-size 2" + schedule, 2, [&](Trainer& trainer) {
      const LossSum all = sum_of_all_ranks(trainer.evaluate(with_short_batch(trainer.config())), trainer.groups());
      EXPECT_EQ(all.num_tokens, expected.num_tokens);
      EXPECT_EQ(all.sum, expected.sum) << schedule;
    });
}

}  // namespace
}  // namespace megatron::testing
