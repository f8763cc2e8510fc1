#include "megatron/telemetry/timers.h"

#include <gtest/gtest.h>

#include "megatron/base/error.h"
#include "tests/telemetry/manual_clock.h"

namespace megatron {
namespace {

using Names = std::vector<std::string>;
using Rows = std::vector<std::vector<double>>;

TEST(Timers, AddUpOverSeveralRunsAndStartAnewWhenTaken) {
  testing::ManualClock clock;
  Timers timers(0, clock.reader());
  for (int i = 0; i < 3; ++i) {
    timers.start("forward", 0);
    clock.advance_seconds(2);
    timers.stop("forward", 0);
    clock.advance_seconds(100);
  }
  EXPECT_DOUBLE_EQ(timers.take_seconds("forward"), 6.0);
  EXPECT_DOUBLE_EQ(timers.take_seconds("forward"), 0.0);
}

TEST(Timers, ARunningTimerIsReadWithoutLosingTime) {
  testing::ManualClock clock;
  Timers timers(0, clock.reader());
  timers.start("interval-time", 0);
  clock.advance_seconds(5);
  EXPECT_DOUBLE_EQ(timers.take_seconds("interval-time"), 5.0);
  clock.advance_seconds(3);
  timers.stop("interval-time", 0);
  EXPECT_DOUBLE_EQ(timers.take_seconds("interval-time"), 3.0);
}

TEST(Timers, APausedTimerLeavesTheBlockOut) {
  testing::ManualClock clock;
  Timers timers(0, clock.reader());
  timers.start("interval-time", 0);
  clock.advance_seconds(1);
  {
    const auto pause = timers.pause("interval-time");
    const auto nested = timers.pause("interval-time");
    const auto others = timers.scope("evaluate", 0);
    clock.advance_seconds(100);
  }
  clock.advance_seconds(2);
  EXPECT_DOUBLE_EQ(timers.take_seconds("interval-time"), 3.0);
  EXPECT_DOUBLE_EQ(timers.take_seconds("evaluate"), 100.0);
  { const auto pause = timers.pause("never started"); }
  EXPECT_DOUBLE_EQ(timers.take_seconds("never started"), 0.0);
}

TEST(Timers, IgnoreWhatIsAboveTheirLevel) {
  testing::ManualClock clock;
  Timers timers(1, clock.reader());
  {
    const auto recorded = timers.scope("optimizer", 1);
    const auto ignored = timers.scope("forward-compute", 2);
    clock.advance_seconds(1);
  }
  EXPECT_EQ(timers.names(), Names{"optimizer"});
  EXPECT_EQ(timers.take_seconds(Names{"optimizer", "forward-compute"}), (std::vector<double>{1.0, 0.0}));
}

TEST(Timers, RefuseAStartWhileRunningAndAStopWhileNot) {
  Timers timers(0);
  EXPECT_THROW(timers.stop("a", 0), InternalError);
  timers.start("a", 0);
  EXPECT_THROW(timers.start("a", 0), InternalError);
}

TEST(TimersReport, ShowsSmallestAndLargestOverTheRanksThatRanIt) {
  EXPECT_EQ(timers_report(TimingOption::kMinMax, Names{"forward-backward", "optimizer", "never"},
                          Rows{{0.2, 0.0, 0.0}, {0.4, 0.01, 0.0}}, 2.0),
            "(min, max) time across ranks (ms):\n"
            "    forward-backward ...............................: (100.00, 200.00)\n"
            "    optimizer ......................................: (5.00, 5.00)");
}

TEST(TimersReport, ShowsOnlyTheLargest) {
  EXPECT_EQ(timers_report(TimingOption::kMax, Names{"optimizer"}, Rows{{0.02}, {0.01}}, 1.0),
            "max time across ranks (ms):\n    optimizer ......................................: 20.00");
}

TEST(TimersReport, ShowsEachRankThatRanIt) {
  EXPECT_EQ(timers_report(TimingOption::kAll, Names{"optimizer", "never"}, Rows{{0.02, 0}, {0, 0}, {0.01, 0}}, 1.0),
            "times across ranks (ms):\n  optimizer:\n     rank  0: 20.00\n     rank  2: 10.00");
}

TEST(TimersReport, IsNothingIfNoTimerRan) {
  EXPECT_EQ(timers_report(TimingOption::kAll, Names{"a"}, Rows{{0.0}}, 1.0), std::nullopt);
}

TEST(TimingOption, IsReadFromItsFlag) {
  EXPECT_EQ(parse_timing_option("minmax"), TimingOption::kMinMax);
  EXPECT_EQ(parse_timing_option("max"), TimingOption::kMax);
  EXPECT_EQ(parse_timing_option("all"), TimingOption::kAll);
  EXPECT_THROW(parse_timing_option("mean"), ConfigError);
}

}  // namespace
}  // namespace megatron
