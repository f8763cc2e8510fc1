#include "megatron/telemetry/timers_report.h"

#include <gtest/gtest.h>

#include "megatron/base/error.h"

namespace megatron {
namespace {

using Names = std::vector<std::string_view>;
using Rows = std::vector<std::vector<double>>;

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
