#include "megatron/training/profile/host_op_times.h"

#include <gtest/gtest.h>

#include <optional>

#include "tests/training/small_trainer.h"

namespace megatron {
namespace {

TEST(HostOpTimes, AnOpCostsFromTheEndOfTheOneBefore) {
  HostOpTimes times;
  EXPECT_TRUE(times.empty());
  times.begin_step();
  times.add("linear", Pass::kForward, {.begin_ns = 1000, .end_ns = 3000});
  times.add("rope", Pass::kForward, {.begin_ns = 9000, .end_ns = 10000});
  times.add("copy_to_host", Pass::kNone, {.begin_ns = 10000, .end_ns = 900000});
  times.add("linear", Pass::kInputGradient, {.begin_ns = 901000, .end_ns = 904000});
  times.add("linear", Pass::kInputGradient, {.begin_ns = 904000, .end_ns = 906500});
  const HostOpCosts costs = times.median_step();
  EXPECT_EQ(costs.num_ops, 4);
  EXPECT_EQ(costs.ns, 2000 + 7000 + 4000 + 2500);
  EXPECT_DOUBLE_EQ(costs.us_per_op(), 15.5 / 4);
  EXPECT_EQ(
      costs.text(),
      "3.88 us an op with its launch, of the first 4 of a step: 1 x 7.00 us rope, 2 x 3.25 us linear.B, 1 x 2.00 us "
      "linear");
}

TEST(HostOpTimes, TheMedianStepCountsAndItsFirstOpsAlone) {
  HostOpTimes times;
  for (const int64_t step : {7, 900, 1, 5, 8}) {
    times.begin_step();
    for (size_t i = 0; i < HostOpTimes::kMostOps; ++i) {
      const int64_t begin = 1 + static_cast<int64_t>(i) * step;
      times.add("add", Pass::kForward, {.begin_ns = begin, .end_ns = begin + step});
    }
    times.add("add", Pass::kForward, {.begin_ns = 1'000'000, .end_ns = 9'000'000});
  }
  const HostOpCosts costs = times.median_step();
  EXPECT_EQ(costs.num_ops, 512);
  EXPECT_EQ(costs.ns, 512 * 7);
}

TEST(HostOpTimes, NoOpsCostNothing) {
  HostOpTimes times;
  times.begin_step();
  EXPECT_EQ(times.median_step().num_ops, 0);
}

/// The step under way when the clock is set going is left out: its first ops were missed.
TEST(HostOpClock, CountsTheOpsOfWholeSteps) {
  Trainer trainer(testing::small_config(testing::gpt2_like()), {.device = DeviceKind::kCpu});
  testing::train(trainer, 0, 1);
  HostOpClock clock(trainer.device());
  testing::train(trainer, 1, 2);
  EXPECT_TRUE(clock.times().empty());
  for (int64_t step = 2; step < 4; ++step) {
    const ProfiledRange range(trainer.device().profiler, {.name = "step"});
    testing::train(trainer, step, step + 1);
  }
  clock.stop();
  EXPECT_EQ(trainer.device().profiler, nullptr);
  const HostOpCosts costs = clock.times().median_step();
  EXPECT_GT(costs.num_ops, 100);
  EXPECT_LT(costs.num_ops, 300);
  EXPECT_GT(costs.ns, 0);
  int64_t linear = 0;
  for (const HostOpCosts::Kind& kind : costs.kinds)
    if (kind.name.starts_with("linear")) linear += kind.num_ops;
  EXPECT_EQ(linear, 2 * 3 * (3 * 4 + 1));  // micro-batches, passes, layers
}

TEST(HostOpClock, MayOutliveTheDeviceThatItListenedTo) {
  std::optional<HostOpClock> clock;
  {
    Trainer trainer(testing::small_config(testing::gpt2_like()), {.device = DeviceKind::kCpu});
    clock.emplace(trainer.device());
    {
      const ProfiledRange range(trainer.device().profiler, {.name = "step"});
      testing::train(trainer, 0, 1);
    }
    clock->stop();
  }
  EXPECT_GT(clock->times().median_step().num_ops, 0);
}

}  // namespace
}  // namespace megatron
