#include "megatron/training/microbatch_calculator.h"

#include <gtest/gtest.h>

#include "megatron/base/error.h"
#include "tests/testing/golden_json.h"

namespace megatron {
namespace {

using Json = nlohmann::json;

MicrobatchCalculatorConfig config_of(const Json& test) {
  const Json& ramp = test["rampup_batch_size"];
  const int64_t whole = test["global_batch_size"];
  const auto steps = [&]() -> std::vector<BatchSizeStep> {
    if (ramp.is_null()) return {{0, whole}};
    return ramp_steps({.start = ramp.at(0), .increment = ramp.at(1), .samples = ramp.at(2)}, whole);
  };
  return {.steps = steps(),
          .micro_batch_size = test["micro_batch_size"],
          .data_parallel_size = test["data_parallel_size"],
          .decrease_batch_size_if_needed = test["decrease_batch_size_if_needed"],
          .drops_partial_batch = !ramp.is_null()};
}

BatchSize batch_of(const Json& numbers) { return {numbers[0], numbers[1], numbers[2]}; }

// Constant batches, and the linear ramps of 0.16.1.
TEST(MicrobatchCalculator, GivesTheGoldenBatches) {
  int constant = 0, ramps = 0;
  for (const Json& test : testing::golden_json("training/microbatches.json", "cases")) {
    SCOPED_TRACE(test.dump());
    ++(test["rampup_batch_size"].is_null() ? constant : ramps);
    if (test["rampup_batch_size"].size() == 2) continue;  // the command line's rule
    if (!test["error"].is_null()) {
      EXPECT_THROW(MicrobatchCalculator{config_of(test)}, ConfigError);
      continue;
    }
    const MicrobatchCalculator calculator(config_of(test));
    EXPECT_EQ(calculator.at(0), batch_of(test["at_start"]));
    for (const Json& row : test["rows"])
      EXPECT_EQ(calculator.at(row[0]), batch_of({row[1], row[2], row[3]})) << "after " << row[0] << " samples";
  }
  EXPECT_GT(constant, 0);
  EXPECT_GT(ramps, 0);
}

TEST(MicrobatchCalculator, RampsAsADivisionOfDoublesSays) {
  for (const BatchSizeRamp ramp : {BatchSizeRamp{1, 1, 1}, {1, 1, 7}, {2, 3, 49}, {1, 1, 1000}, {4, 2, 3}}) {
    const int64_t whole = ramp.start + 12 * ramp.increment;
    const MicrobatchCalculator calculator({.steps = ramp_steps(ramp, whole)});
    const double samples_of_increment = static_cast<double>(ramp.samples) / 12;
    for (int64_t consumed = 0; consumed < ramp.samples + 20; ++consumed) {
      const auto increments = static_cast<int64_t>(static_cast<double>(consumed) / samples_of_increment);
      const int64_t batch = consumed > ramp.samples ? whole : ramp.start + increments * ramp.increment;
      EXPECT_EQ(calculator.at(consumed).global_batch_size, batch) << ramp.samples << " samples, " << consumed;
    }
  }
}

TEST(MicrobatchCalculator, RefusesRampsThatDoNotArrive) {
  for (const BatchSizeRamp ramp :
       {BatchSizeRamp{0, 4, 100}, {8, 0, 100}, {8, 4, 0}, {8, 5, 100}, {32, 4, 100}, {40, 4, 9}})
    EXPECT_THROW(ramp_steps(ramp, 32), ConfigError) << ramp.start << ' ' << ramp.increment << ' ' << ramp.samples;
  EXPECT_THROW(ramp_steps({1, 1, 1000000}, 2147483647), ConfigError);
}

TEST(MicrobatchCalculator, ReadsSuffixesAndBothSeparators) {
  EXPECT_EQ(parse_step_batch_size_schedule("0:4 1K:8,0.002M:1k", 32),
            (std::vector<BatchSizeStep>{{0, 4}, {31, 8}, {62, 1000}}));
}

TEST(MicrobatchCalculator, RefusesBadSchedules) {
  for (const char* schedule : {"", " ", "5", "0:", ":4", "0:x", "0:4 64", "64:4", "0:0", "0:4 10:8", "0:4 640:8 640:16",
                               "0:4X", "0:4:5", "-1:4", "0:-4", "0:nan", "0:1e30"})
    EXPECT_THROW(parse_step_batch_size_schedule(schedule, 32), ConfigError) << schedule;
}

TEST(MicrobatchCalculator, RefusesAScheduledBatchThatDoesNotDivideBeforeTheRun) {
  EXPECT_THROW(MicrobatchCalculator({.steps = {{0, 4}, {10, 6}}, .micro_batch_size = 2, .data_parallel_size = 2}),
               ConfigError);
}

TEST(MicrobatchCalculator, LeavesOutWhatDoesNotFillABatchAfterARamp) {
  const MicrobatchCalculator calculator({.steps = ramp_steps({2, 2, 12}, 8), .drops_partial_batch = true});
  // Batches of 2, 2, 4 and 6 from samples 0, 2, 4 and 8, and of 8 from sample 14 on.
  EXPECT_EQ(calculator.num_iterations(29), 5);
  EXPECT_EQ(calculator.num_iterations(30), 6);
  EXPECT_EQ(calculator.num_iterations(37), 6);
  EXPECT_EQ(calculator.num_iterations(3), 2);
}

TEST(MicrobatchCalculator, CountsTheSameIterationsAsARun) {
  const MicrobatchCalculator calculator({.steps = {{0, 2}, {15, 4}, {46, 6}}});
  for (int64_t samples = 0; samples < 130; ++samples) {
    int64_t iterations = 0;
    for (int64_t consumed = 0; consumed < samples; ++iterations) consumed += calculator.at(consumed).running_batch_size;
    EXPECT_EQ(calculator.num_iterations(samples), iterations) << samples;
  }
}

}  // namespace
}  // namespace megatron
