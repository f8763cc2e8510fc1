#include "megatron/telemetry/axis.h"

#include <gtest/gtest.h>

#include "megatron/base/error.h"

namespace megatron {
namespace {

std::vector<std::string> labels(const Axis& axis, int target) {
  std::vector<std::string> result;
  for (const Tick& tick : axis.ticks(target)) result.push_back(tick.label);
  return result;
}

using Labels = std::vector<std::string>;

TEST(Axis, MarksRoundValues) {
  EXPECT_EQ(labels(Axis(AxisScale::kLinear, 0, 500), 5), (Labels{"0", "100", "200", "300", "400", "500"}));
  EXPECT_EQ(labels(Axis(AxisScale::kLinear, 1.43, 4.21), 6), (Labels{"1.5", "2.0", "2.5", "3.0", "3.5", "4.0"}));
  EXPECT_EQ(labels(Axis(AxisScale::kLinear, 0, 40'000), 4), (Labels{"0", "10k", "20k", "30k", "40k"}));
  EXPECT_EQ(labels(Axis(AxisScale::kLinear, -1, 1), 4), (Labels{"-1.0", "-0.5", "0", "0.5", "1.0"}));
}

TEST(Axis, MarksDecadesOnALogarithmicScale) {
  EXPECT_EQ(labels(Axis(AxisScale::kLog, 1, 100), 6), (Labels{"1", "2", "5", "10", "20", "50", "100"}));
  EXPECT_EQ(labels(Axis(AxisScale::kLog, 1e-6, 1), 4), (Labels{"1e-06", "0.0001", "0.01", "1"}));
  EXPECT_EQ(labels(Axis(AxisScale::kLog, 2, 4), 4), (Labels{"2.0", "2.5", "3.0", "3.5", "4.0"}))
      << "less than a decade is marked as on a linear scale";
}

TEST(Axis, PlacesValuesBetweenItsEnds) {
  const Axis linear(AxisScale::kLinear, 2, 6);
  EXPECT_DOUBLE_EQ(linear.position(2), 0.0);
  EXPECT_DOUBLE_EQ(linear.position(3), 0.25);
  const Axis log(AxisScale::kLog, 1, 100);
  EXPECT_DOUBLE_EQ(log.position(10), 0.5);
}

TEST(Axis, RoundsItsEndsOutwards) {
  const Axis axis = Axis(AxisScale::kLinear, 1.43, 4.21).rounded_out(6);
  EXPECT_DOUBLE_EQ(axis.low(), 1.0);
  EXPECT_DOUBLE_EQ(axis.high(), 4.5);
}

TEST(Axis, GivesAnEmptyRangeAWidth) {
  EXPECT_DOUBLE_EQ(Axis(AxisScale::kLinear, 3, 3).position(3), 0.5);
  EXPECT_DOUBLE_EQ(Axis(AxisScale::kLinear, 0, 0).position(0), 0.5);
  EXPECT_DOUBLE_EQ(Axis(AxisScale::kLog, 3, 3).position(3), 0.5);
}

TEST(Axis, RejectsRangesThatItCannotShow) {
  EXPECT_THROW(Axis(AxisScale::kLinear, 2, 1), InternalError);
  EXPECT_THROW(Axis(AxisScale::kLog, 0, 1), InternalError);
}

}  // namespace
}  // namespace megatron
