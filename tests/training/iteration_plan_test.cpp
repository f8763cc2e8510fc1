#include "megatron/training/iteration_plan.h"

#include <gtest/gtest.h>

#include "tests/training/config/command_line.h"

namespace megatron {
namespace {

using testing::parse;
using testing::Words;

/// Runs the order of things of an iteration, and counts. The run has 20 iterations.
int64_t evaluations_of_a_run(const IterationPlan& plan, int64_t iteration) {
  int64_t num = 0;
  while (iteration < 20) {
    if (plan.skips(++iteration)) continue;
    num += plan.validates_after(iteration);
    if (plan.exits_after(iteration)) return num;
  }
  return num + 1;  // at the end
}

TEST(IterationPlan, CountsTheEvaluationsThatARunDoes) {
  const std::vector<Words> all = {
      {},
      {"--eval-interval", "3"},
      {"--eval-interval", "20"},
      {"--eval-interval", "21"},
      {"--eval-interval", "2", "--start-eval-at-iter", "7"},
      {"--eval-interval", "2", "--exit-interval", "7"},
      {"--eval-interval", "2", "--exit-interval", "20"},
      {"--eval-interval", "2", "--exit-interval", "30"},
      {"--eval-interval", "2", "--iterations-to-skip", "4", "5", "5", "18", "40"},
      {"--eval-interval", "2", "--exit-interval", "7", "--iterations-to-skip", "7"},
      {"--eval-interval", "2", "--phase-transition-iterations", "14,7"},
      {"--eval-interval", "2", "--exit-interval", "6", "--phase-transition-iterations", "7"},
      {"--eval-interval", "2", "--exit-interval", "7", "--iterations-to-skip", "7", "14"},
  };
  for (const Words& words : all) {
    const PretrainConfig config = parse(words);
    const IterationPlan plan(config);
    for (const int64_t start : {0, 1, 6, 7, 13, 14, 19, 20})
      EXPECT_EQ(plan.num_evaluations_left(start), evaluations_of_a_run(plan, start))
          << ::testing::PrintToString(words) << " from " << start;
  }
}

TEST(IterationPlan, CountsOneEvaluationWithoutTrainingAndNoneWithoutBatches) {
  const PretrainConfig none = parse({"--eval-interval", "2", "--eval-iters", "0"});
  const PretrainConfig only = parse({"--eval-interval", "2", "--skip-train"});
  EXPECT_EQ(IterationPlan(none).num_evaluations_left(0), 0);
  EXPECT_EQ(IterationPlan(only).num_evaluations_left(3), 1);
}

TEST(IterationPlan, ASkippedIterationNeitherValidatesNorSavesNorExits) {
  const PretrainConfig config = parse({"--eval-interval", "2", "--exit-interval", "2", "--save", "x", "--save-interval",
                                       "2", "--iterations-to-skip", "4"});
  const IterationPlan plan(config);
  for (const int64_t iteration : {2, 6}) {
    EXPECT_FALSE(plan.skips(iteration));
    EXPECT_TRUE(plan.validates_after(iteration) && plan.saves_after(iteration) && plan.exits_after(iteration));
  }
  for (const int64_t iteration : {3, 4})
    EXPECT_FALSE(plan.validates_after(iteration) || plan.saves_after(iteration) || plan.exits_after(iteration));
  EXPECT_TRUE(plan.skips(4));
}

}  // namespace
}  // namespace megatron
