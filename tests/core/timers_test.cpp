#include "megatron/core/timers.h"

#include <gtest/gtest.h>

#include <utility>

#include "megatron/base/error.h"
#include "tests/testing/manual_clock.h"

namespace megatron {
namespace {

using Names = std::vector<std::string_view>;

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
    timed(&timers, "evaluate", 0, [&] { clock.advance_seconds(100); });
  }
  clock.advance_seconds(2);
  EXPECT_DOUBLE_EQ(timers.take_seconds("interval-time"), 3.0);
  EXPECT_DOUBLE_EQ(timers.take_seconds("evaluate"), 100.0);
  { const auto pause = timers.pause("never started"); }
  EXPECT_DOUBLE_EQ(timers.take_seconds("never started"), 0.0);
}

TEST(Timers, IgnoreWhatIsAboveTheirLevelAndDoItAllTheSame) {
  testing::ManualClock clock;
  Timers timers(1, clock.reader());
  const auto second = [&] {
    clock.advance_seconds(1);
    return 7;
  };
  EXPECT_EQ(timed(&timers, "optimizer", 1, second), 7);
  EXPECT_EQ(timed(&timers, "forward-compute", 2, second), 7);
  EXPECT_EQ(timed(nullptr, "optimizer", 0, second), 7);
  EXPECT_EQ(timers.take_seconds(Names{"optimizer", "forward-compute"}), (std::vector<double>{1.0, 0.0}));
}

TEST(Timers, WaitForTheDeviceBeforeTheyStartAndBeforeTheyStop) {
  testing::ManualClock clock;
  Timers timers(1, clock.reader());
  double queued_seconds = 5;  // work that the device has yet to do
  timers.wait_before_reading([&] { clock.advance_seconds(std::exchange(queued_seconds, 0)); });
  timed(&timers, "optimizer", 1, [&] { queued_seconds = 2; });
  EXPECT_DOUBLE_EQ(timers.take_seconds("optimizer"), 2.0);
  timed(&timers, "forward-compute", 2, [&] { queued_seconds = 3; });
  EXPECT_EQ(queued_seconds, 3) << "nobody asked how long it takes";
}

TEST(Timers, RejectAStartWhileRunningAndAStopWhileNot) {
  Timers timers(0);
  EXPECT_THROW(timers.stop("a", 0), InternalError);
  timers.start("a", 0);
  EXPECT_THROW(timers.start("a", 0), InternalError);
}

}  // namespace
}  // namespace megatron
