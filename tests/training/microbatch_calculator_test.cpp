#include "megatron/training/microbatch_calculator.h"

#include <gtest/gtest.h>

#include "megatron/base/error.h"
#include "tests/testing/golden_json.h"

namespace megatron {
namespace {

using Json = nlohmann::json;

MicrobatchCalculatorConfig config_of(const Json& test) {
  return {.steps = {{0, test["global_batch_size"]}},
          .micro_batch_size = test["micro_batch_size"],
          .data_parallel_size = test["data_parallel_size"],
          .decrease_batch_size_if_needed = test["decrease_batch_size_if_needed"]};
}

BatchSize batch_of(const Json& numbers) { return {numbers[0], numbers[1], numbers[2]}; }

// The golden file's linear ramps are 0.16.1's and have no flag in later versions; here they are refused.
TEST(MicrobatchCalculator, GivesTheGoldenConstantBatches) {
  int constant = 0;
  for (const Json& test : testing::golden_json("training/microbatches.json", "cases")) {
    if (!test["rampup_batch_size"].is_null()) continue;
    SCOPED_TRACE(test.dump());
    ++constant;
    if (!test["error"].is_null()) {
      EXPECT_THROW(MicrobatchCalculator{config_of(test)}, ConfigError);
      continue;
    }
    const MicrobatchCalculator calculator(config_of(test));
    EXPECT_EQ(calculator.at(0), batch_of(test["at_start"]));
    for (const Json& row : test["rows"])
      EXPECT_EQ(calculator.at(row[0]), batch_of({row[1], row[2], row[3]})) << "after " << row[0] << " samples";
  }
  EXPECT_EQ(constant, 14);
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
