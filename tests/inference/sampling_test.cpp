#include "megatron/inference/sampling.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "megatron/base/error.h"

namespace megatron::testing {
namespace {

const RandomKey kKey = RandomKey::from_seed(7);

TEST(SampleToken, TakesTheLargestLogitAtTemperatureZeroAndTheSmallerIdOfEquals) {
  EXPECT_EQ(sample_token(std::vector{0.1, 2.0, -1.0, 2.0}, {.temperature = 0}, kKey, 0), 1);
}

TEST(SampleToken, DrawsWithTheProbabilitiesOfTheSoftmax) {
  const std::vector<double> logits = {std::log(0.5), std::log(0.3), std::log(0.2)};
  std::vector<int> counts(3);
  constexpr int n = 20000;
  for (int i = 0; i < n; ++i) ++counts[static_cast<size_t>(sample_token(logits, {}, kKey, i))];
  for (size_t id = 0; id < 3; ++id) {
    const double p = std::exp(logits[id]);
    EXPECT_NEAR(counts[id], n * p, 5 * std::sqrt(n * p * (1 - p))) << id;  // five deviations
  }
}

TEST(SampleToken, NeverLeavesTheTopKOrTheNucleus) {
  const std::vector<double> logits = {std::log(0.1), std::log(0.4), std::log(0.15), std::log(0.35)};
  for (int i = 0; i < 500; ++i) {
    const int64_t of_two = sample_token(logits, {.top_k = 2}, kKey, i);
    EXPECT_TRUE(of_two == 1 || of_two == 3);
    const int64_t of_nucleus = sample_token(logits, {.top_p = 0.8}, kKey, i);
    EXPECT_NE(of_nucleus, 0) << "0.4 + 0.35 + 0.15 reach 0.8 without it";
  }
  EXPECT_EQ(sample_token(logits, {.top_p = 0.3}, kKey, 0), 1);
}

TEST(SampleToken, GivesTheSameTokenForTheSameKeyAndPosition) {
  const std::vector<double> logits(50, 0.0);
  EXPECT_EQ(sample_token(logits, {}, kKey, 3), sample_token(logits, {}, kKey, 3));
  int num_changes = 0;
  for (int i = 0; i < 20; ++i)
    num_changes += sample_token(logits, {}, kKey, i) != sample_token(logits, {}, kKey, i + 1);
  EXPECT_GT(num_changes, 10);
}

TEST(SampleToken, RefusesOptionsOutOfRangeAndLogitsThatAreNotFinite) {
  const std::vector<double> logits = {0.0, 1.0};
  EXPECT_THROW(sample_token(logits, {.temperature = -1}, kKey, 0), ConfigError);
  EXPECT_THROW(sample_token(logits, {.top_k = -1}, kKey, 0), ConfigError);
  EXPECT_THROW(sample_token(logits, {.top_p = 0}, kKey, 0), ConfigError);
  EXPECT_THROW(sample_token(logits, {.top_p = 1.5}, kKey, 0), ConfigError);
  EXPECT_THROW(sample_token(std::vector{0.0, std::numeric_limits<double>::quiet_NaN()}, {}, kKey, 0), ConfigError);
}

}  // namespace
}  // namespace megatron::testing
