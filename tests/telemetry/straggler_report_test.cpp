#include "megatron/telemetry/straggler_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

namespace megatron {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr RankWork kUsual{.forward = 0.010, .backward = 0.020, .optimizer = 0.001, .data = 0.001, .waiting = 0.005};

TEST(StragglerReport, NamesTheSlowestRankAndWhy) {
  RankWork slow = kUsual, hungry = kUsual;
  slow.forward = 0.015;
  hungry.data = 0.050;
  const auto computing = std::to_array<RankWork>({kUsual, kUsual, slow, kUsual});
  const std::string text = straggler_report({.time = {}, .forward_operations = 1e11, .num_listed = 1}, computing);
  EXPECT_THAT(text, HasSubstr("MnRtt/Rnk: 10.00ms/0 | MxRtt/Rnk: 15.00ms/2 | MnDRtt/Rnk: 1.00ms/0 |"));
  EXPECT_THAT(text, HasSubstr("MnEtpt/Rnk: 6.67TF/2 | MxEtpt/Rnk: 10.00TF/3 |"));
  EXPECT_THAT(text, HasSubstr("straggler: rank 2 is slowest, 37.00 ms of its own work in a step"));
  EXPECT_THAT(text, HasSubstr("15.6% more than the median rank 1: it computes longer"));
  EXPECT_THAT(text, Not(HasSubstr("fastest ranks")));
  const auto reading = std::to_array<RankWork>({kUsual, hungry, kUsual});
  EXPECT_THAT(straggler_report({.time = {}}, reading), HasSubstr("rank 1 is slowest"));
  EXPECT_THAT(straggler_report({.time = {}}, reading), HasSubstr("it waits for its data"));
}

TEST(StragglerReport, ListsSeveralRanksIfAskedTo) {
  RankWork slow = kUsual;
  slow.backward = 0.030;
  const auto ranks = std::to_array<RankWork>({kUsual, slow, kUsual});
  const std::string text = straggler_report({.time = {}, .num_listed = 2}, ranks);
  EXPECT_THAT(text, HasSubstr("fastest ranks: 0 (32.00 ms), 2 (32.00 ms)"));
  EXPECT_THAT(text, HasSubstr("slowest ranks: 1 (42.00 ms), 2 (32.00 ms)"));
}

TEST(StragglerReport, HasNothingToCompareOneRankWith) {
  const auto one = std::to_array<RankWork>({kUsual});
  EXPECT_THAT(straggler_report({.time = {}}, one), Not(HasSubstr("median rank")));
}

}  // namespace
}  // namespace megatron
