#include "megatron/kernels/stochastic_rounding.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <set>

#include "megatron/core/step_state.h"
#include "megatron/kernels/adam.h"
#include "megatron/kernels/cpu/stochastic_rounding.h"
#include "tests/kernels/cpu_streams.h"
#include "tests/testing/guarded_tensor.h"
#include "tests/testing/tolerance.h"

namespace megatron::kernels {
namespace {
using testing::GuardedTensor;
using testing::random_values;
using Values = std::vector<double>;

float rounded(float x, uint32_t draw) { return std::bit_cast<float>(round_to_bf16(std::bit_cast<uint32_t>(x), draw)); }

TEST(StochasticRounding, HasTheNumberItselfAsMeanOverAllDraws) {
  std::vector<float> numbers = {0.0F, 1 + 0x1p-23F, 1 + 0x1p-8F, -1 - 0x1p-9F, 0x1.fffffep-3F, 0x1.2345p-130F, -3e30F};
  for (double x : random_values(20, 3)) numbers.push_back(static_cast<float>(x));
  for (float x : numbers) {
    double sum = 0;
    std::set<float> results;
    for (uint32_t draw = 0; draw < 1 << 16; ++draw) {
      results.insert(rounded(x, draw));
      sum += static_cast<double>(rounded(x, draw)) * 0x1p-16;
    }
    EXPECT_EQ(sum, static_cast<double>(x));
    EXPECT_LE(results.size(), 2U) << x;
    for (float y : results) EXPECT_EQ(static_cast<float>(BFloat16(y)), y);
  }
}

TEST(StochasticRounding, KeepsWhatIsNotFinite) {
  for (uint32_t draw : {0U, 1U, 0x8000U, 0xFFFFU}) {
    EXPECT_EQ(rounded(INFINITY, draw), INFINITY);
    EXPECT_EQ(rounded(-INFINITY, draw), -INFINITY);
    for (uint32_t nan : {0x7FFFFFFFU, 0xFFFFFFFFU, 0x7F800001U, 0x7FC00000U})
      EXPECT_TRUE(std::isnan(std::bit_cast<float>(round_to_bf16(nan, draw)))) << nan;
  }
}

/// Columns 5 to 11 and 40 to 42 of a matrix of 50 columns, from the third row on, and rows of a matrix.
ElementNumbers columns() {
  return {.first = 20, .block = 10, .whole_block = 50, .runs = {{{0, 5}, {7, 40 - 7}, {}, {}}}};
}
int64_t number_in_columns(int64_t i) {
  const int64_t row = (20 + i) / 10, column = (20 + i) % 10;
  return row * 50 + (column < 7 ? 5 + column : 40 + column - 7);
}

TEST(StochasticRounding, DrawsBelongToElementsOfTheWholeTensor) {
  const StochasticRounding whole{.key = {7}, .numbers = {}}, part{.key = {7}, .numbers = columns()};
  std::vector<uint32_t> all(6000), own(1000);
  for (int64_t step : {0, 5}) {
    rounding_draws(whole, step, 0, std::ssize(all), all.data());
    for (int64_t i = 0; i < std::ssize(all); ++i)
      ASSERT_EQ(all[static_cast<size_t>(i)], draw4({7}, step, 0, i / 4)[static_cast<size_t>(i % 4)]);
    for (int64_t begin : {0, 1, 999}) {
      rounding_draws(part, step, begin, std::ssize(own) - begin, own.data());
      for (int64_t i = 0; i < std::ssize(own) - begin; ++i)
        ASSERT_EQ(own[static_cast<size_t>(i)], all[static_cast<size_t>(number_in_columns(begin + i))]) << i;
    }
  }
}

TEST(StochasticRounding, NumbersOfLargeTensorsAreRight) {
  constexpr int64_t kRows = int64_t{1} << 33;
  const ElementNumbers numbers{.first = 0, .block = 6, .whole_block = 12, .runs = {{{0, 6}, {}, {}, {}}}};
  EXPECT_EQ(run_at(numbers, 6 * kRows + 2).number, 12 * kRows + 8);
  EXPECT_EQ(run_at(numbers, 6 * kRows + 2).length, 4);
  const StochasticRounding rounding{.key = {9}, .numbers = {.first = 4 * kRows}};
  uint32_t draw = 0;
  rounding_draws(rounding, 3, 1, 1, &draw);
  EXPECT_EQ(draw, draw4({9}, 3, kRows >> 32, kRows)[1]);
}

/// n equal elements, so that the mean of what they are rounded to is that of the draws.
struct EqualElements {
  EqualElements(double weight, double gradient, double first, double second)
      : parameter(DType::kBFloat16, {kSize}, Values(kSize, weight)),
        gradient(DType::kBFloat16, {kSize}, Values(kSize, gradient)),
        m(DType::kBFloat16, {kSize}, Values(kSize, first)),
        v(DType::kBFloat16, {kSize}, Values(kSize, second)) {
    state.learning_rate = 1e-3, state.weight_decay = 0.1, state.clip_factor = 0.75;
    state.bias_correction1 = 0.9, state.bias_correction2 = 0.5;
  }
  AdamArgs args() {
    return {.parameter = parameter.view(),
            .gradient = gradient.view(),
            .first_moment = m.view(),
            .second_moment = v.view(),
            .rounding = {.key = {5}},
            .state = &state};
  }
  static constexpr int64_t kSize = 200001;
  StepState state;
  GuardedTensor parameter, gradient, m, v;
};

/// A mean of n results of two neighbours errs by half their distance over the root of n, 8 deviations at most, and by
/// the rounding of the fp32 arithmetic before.
void expect_unbiased(const GuardedTensor& results, double expected) {
  const double unit = std::exp2(std::floor(std::log2(std::abs(expected)))) * epsilon(DType::kBFloat16);
  double sum = 0;
  for (int64_t i = 0; i < EqualElements::kSize; ++i) {
    ASSERT_LT(std::abs(results[i] - expected), unit * (1 + 1e-4)) << "not a neighbour";
    sum += results[i];
  }
  const double bound = testing::kDeviations * unit / 2 / std::sqrt(static_cast<double>(EqualElements::kSize)) +
                       testing::tolerance(DType::kFloat32, 1, std::abs(expected));
  EXPECT_NEAR(sum / EqualElements::kSize, expected, bound);
  EXPECT_LT(bound, unit / 50) << "the test would not see a bias";
}

TEST(StochasticRounding, OfAdamsWeightsAndSecondMomentsIsUnbiasedBesideFloat64) {
  for (const auto& [weight, gradient, first, second] :
       {std::tuple{0.75, 0.125, 0.0625, 0.25}, {-3.5, 0.0, 0x1p-9, 0.0625}, {0.0078125, -0.5, 0.25, 1.0}}) {
    EqualElements x(weight, gradient, first, second);
    adam(kTwoThreads, x.args());
    const double g = 0.75 * gradient, m = 0.9 * first + 0.1 * g, v = 0.999 * second + 0.001 * g * g;
    expect_unbiased(x.v, v);
    expect_unbiased(x.parameter, weight - 1e-3 * (m / 0.9 / (std::sqrt(v / 0.5) + 1e-8) + 0.1 * weight));
    for (const GuardedTensor* tensor : {&x.parameter, &x.gradient, &x.m, &x.v})
      EXPECT_TRUE(tensor->guards_are_intact());
  }
}

TEST(StochasticRounding, OfWeightsAndOfMomentsAreIndependent) {
  EqualElements x(0.75, 0.125, 0.0625, 0.25);
  adam(kTwoThreads, x.args());
  const auto centred = [](const GuardedTensor& results) {
    Values values = results.values();
    double mean = 0, square = 0;
    for (double value : values) mean += value / static_cast<double>(values.size());
    for (double& value : values) value -= mean, square += value * value;
    for (double& value : values) value /= std::sqrt(square);
    return values;
  };
  const Values p = centred(x.parameter), v = centred(x.v);
  double with_each_other = 0, with_neighbour = 0;
  for (size_t i = 1; i < p.size(); ++i) with_each_other += p[i] * v[i], with_neighbour += p[i] * p[i - 1];
  const double bound = testing::kDeviations / std::sqrt(static_cast<double>(p.size()));
  EXPECT_LT(std::abs(with_each_other), bound);
  EXPECT_LT(std::abs(with_neighbour), bound);
}

/// 2^-9 of the distance of neighbours a step: to nearest the weight would stand still.
TEST(StochasticRounding, KeepsUpdatesThatRoundingToNearestLoses) {
  EqualElements x(1, 0, 0, 1);
  x.state = {.learning_rate = 0x1p-17, .weight_decay = 1, .bias_correction1 = 1, .bias_correction2 = 1};
  constexpr int kSteps = 64;
  for (x.state.step = 0; x.state.step < kSteps; ++x.state.step) adam(kTwoThreads, x.args());
  double mean = 0;
  for (double value : x.parameter.values()) mean += value / EqualElements::kSize;
  const double expected = std::pow(1 - 0x1p-17, kSteps), unit = 0x1p-8;  // of numbers below 1
  // A few percent of the kSteps draws move the weight, by `unit` each.
  const double deviation = unit * std::sqrt((1 - expected) / unit / EqualElements::kSize);
  EXPECT_NEAR(mean, expected, testing::kDeviations * deviation);
  EXPECT_GT(1 - expected, 10 * testing::kDeviations * deviation);
}

/// With beta2 = 0.999 and to nearest it would stay for ever: 0.001 of it is below half the distance of neighbours.
TEST(StochasticRounding, LetsSecondMomentsFall) {
  EqualElements x(1, 0, 0, 1);
  constexpr int kSteps = 100;
  for (x.state.step = 0; x.state.step < kSteps; ++x.state.step) adam(kTwoThreads, x.args());
  double mean = 0;
  for (double value : x.v.values()) mean += value / EqualElements::kSize;
  const double expected = std::pow(0.999, kSteps), unit = 0x1p-8;  // of numbers below 1
  // A quarter of the kSteps draws moves the moment, by `unit` each; and each step multiplies in fp32.
  const double deviation = unit * std::sqrt((1 - expected) / unit / EqualElements::kSize);
  const double bound = testing::kDeviations * deviation + testing::tolerance(DType::kFloat32, kSteps);
  EXPECT_NEAR(mean, expected, bound);
  EXPECT_GT(1 - expected, 10 * bound);
}

}  // namespace
}  // namespace megatron::kernels
