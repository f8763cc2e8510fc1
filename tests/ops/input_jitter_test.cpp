#include "megatron/ops/input_jitter.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/testing/op_case.h"

namespace megatron::testing {
namespace {

constexpr double kEps = 0.25;

TEST(InputJitter, PassesAllChecks) {
  check({.name = "input_jitter",
         .inputs = {{3, 2, 9}},
         .parameters = {},
         .forward =
             [](Context& ctx, OpOperands& o) {
               return std::vector{input_jitter(ctx, o.inputs[0], {.eps = kEps, .path = "router", .rows = {}})};
             },
         .magnitude = 2});
}

/// Factors of ones.
std::vector<double> factors(const RowMap& rows, int64_t num_rows, int64_t step, std::string_view path = "router") {
  TestDevice test;
  Context ctx = test.context();
  test.step.step = step;
  Tensor x = ctx.empty("x", {num_rows, 1, 300}, DType::kFloat64);
  std::fill_n(x.data<double>(), x.num_elements(), 1.0);
  return values_of(input_jitter(ctx, x, {.eps = kEps, .path = path, .rows = rows}));
}

TEST(InputJitter, FactorsFillTheirIntervalEvenly) {
  const std::vector<double> all = factors({}, 40, 3);
  EXPECT_GE(*std::ranges::min_element(all), 1 - kEps);
  EXPECT_LT(*std::ranges::max_element(all), 1 + kEps);
  std::array<int, 4> quarters{};
  for (const double factor : all) ++quarters.at(static_cast<size_t>((factor - (1 - kEps)) / (2 * kEps) * 4));
  const auto expected = static_cast<double>(all.size()) / 4;
  for (const int count : quarters) EXPECT_NEAR(count, expected, 5 * std::sqrt(expected));
}

/// Two ranks with half of the positions each have the factors of one with all of them.
TEST(InputJitter, FactorsBelongToTokensAndStepsWhateverTheLayout) {
  const std::vector<double> all = factors({}, 8, 3);
  std::vector<double> halves = factors({}, 4, 3), second = factors({.first_position = 4}, 4, 3);
  halves.insert(halves.end(), second.begin(), second.end());
  EXPECT_EQ(halves, all);
  EXPECT_NE(factors({}, 8, 4), all);
  EXPECT_NE(factors({}, 8, 3, "another router"), all);
}

}  // namespace
}  // namespace megatron::testing
