#include "megatron/bench/step_rates.h"

#include <gtest/gtest.h>

#include "megatron/bench/step_shapes.h"
#include "tests/training/small_trainer.h"

namespace megatron {
namespace {

// 3 layers, h = 32, 4 heads of 8, f = 128, s = 16, 4 samples a step, 64 rows of vocabulary.
constexpr double kTokens = 4 * 16, kMatrices = 3 * (4 * 32 * 32 + 2 * 32 * 128) + 32 * 64;
constexpr double kBiases = 3 * (3 * 32 + 32 + 128 + 32), kNorms = 3 * 2 * 64 + 64, kPositions = 16 * 32;

TEST(StepWork, IsCountedInTwoWays) {
  const StepWork work = step_work_of(testing::small_config(testing::gpt2_like()));
  EXPECT_EQ(work.tokens, kTokens);
  EXPECT_EQ(work.num_ranks, 1);
  EXPECT_EQ(work.megatron_operations, kTokens * 6 * (kMatrices + 3 * 32 * 16));
  EXPECT_EQ(work.six_n_operations, kTokens * (6 * (kMatrices + kBiases + kNorms + kPositions) + 12 * 3 * 32 * 16));
}

TEST(StepWork, DoesNotDependOnTheLayout) {
  const StepWork one = step_work_of(testing::small_config(testing::llama_like()));
  const StepWork eight = step_work_of(testing::small_config(
      testing::llama_like(
          "--tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --decoder-first-pipeline-num-"
          "layers 1 --micro-batch-size 1"),
      8));
  EXPECT_EQ(eight.num_ranks, 8);
  EXPECT_EQ(eight.tokens, one.tokens);
  EXPECT_EQ(eight.megatron_operations, one.megatron_operations);
  EXPECT_EQ(eight.six_n_operations, one.six_n_operations);
}

TEST(StepRates, AreRatesOfOneRank) {
  const StepRates rates =
      rates_of({.tokens = 1000, .megatron_operations = 4e12, .six_n_operations = 6e12, .num_ranks = 4}, 0.5);
  EXPECT_EQ(rates.tokens_per_second, 500);
  EXPECT_EQ(rates.megatron_flops, 2e12);
  EXPECT_EQ(rates.six_n_flops, 3e12);
}

}  // namespace
}  // namespace megatron
