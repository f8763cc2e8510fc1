#include "megatron/kernels/cpu/vector_math.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>

namespace megatron::kernels {
namespace {

/// Largest error of a float function on [low, high], in units of the last place of the true value.
double largest_error_ulp(double low, double high, const std::function<float(float)>& actual,
                         const std::function<double(double)>& expected) {
  double largest = 0;
  const int steps = 200000;
  for (int i = 0; i <= steps; ++i) {
    const float x = static_cast<float>(low + (high - low) * i / steps);
    const double truth = expected(static_cast<double>(x));
    const double ulp = std::max(std::exp2(std::floor(std::log2(std::abs(truth))) - 23), 0x1p-149);
    largest = std::max(largest, std::abs(static_cast<double>(actual(x)) - truth) / ulp);
  }
  return largest;
}
double exp64(double x) { return std::exp(x); }
double tanh64(double x) { return std::tanh(x); }
double sigmoid_in_double(double x) { return 1 / (1 + std::exp(-x)); }
double normal64(double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); }

TEST(VectorMath, ExponentialIsWithinTwoUlp) {
  const auto f = [](float x) { return exponential(x); };
  EXPECT_LT(largest_error_ulp(-1, 1, f, exp64), 2);
  EXPECT_LT(largest_error_ulp(-87.3, 88.7, f, exp64), 2);
  EXPECT_LT(largest_error_ulp(-103.9, -87.3, f, exp64), 2);  // subnormal results
}
TEST(VectorMath, DecayingExponentialIsWithinTwoUlpAndHandlesTheEnds) {
  const auto f = [](float x) { return decaying_exponential(x); };
  EXPECT_LT(largest_error_ulp(-87, 0, f, exp64), 2);
  EXPECT_EQ(f(0.0f), 1.0f);
  EXPECT_EQ(f(-87.01f), 0.0f);
  EXPECT_EQ(f(-1e38f), 0.0f);
  EXPECT_EQ(f(-std::numeric_limits<float>::infinity()), 0.0f);
  EXPECT_TRUE(std::isnan(f(std::nanf(""))));
  EXPECT_TRUE(std::isnan(f(std::bit_cast<float>(0xFFFFFFFFu))));
}
TEST(VectorMath, ExponentialHandlesTheEnds) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(exponential(0.0f), 1.0f);
  EXPECT_EQ(exponential(-infinity), 0.0f);
  EXPECT_EQ(exponential(infinity), infinity);
  EXPECT_EQ(exponential(88.8f), infinity);
  EXPECT_TRUE(std::isnan(exponential(std::nanf(""))));
}
TEST(VectorMath, TanhAndSigmoidAreWithinThreeUlp) {
  EXPECT_LT(largest_error_ulp(
                -10, 10, [](float x) { return hyperbolic_tangent(x); }, tanh64),
            3);
  EXPECT_LT(largest_error_ulp(
                -80, 80, [](float x) { return sigmoid(x); }, sigmoid_in_double),
            3);
  EXPECT_EQ(sigmoid(-200.0f), 0.0f);
  EXPECT_EQ(sigmoid(200.0f), 1.0f);
}
TEST(VectorMath, NormalLawIsWithinItsBounds) {
  const auto f = [](float x) { return normal_law(x).distribution; };
  double largest = 0;
  for (float x = -14; x < 14; x += 1e-4f)
    largest = std::max(largest, std::abs(static_cast<double>(f(x)) - normal64(static_cast<double>(x))));
  EXPECT_LT(largest, 2.5 * 0x1p-23);
  EXPECT_LT(largest_error_ulp(-3, 10, f, normal64), 16);  // relative in the tail, where torch's erf form has none
  const auto density = [](double x) { return std::exp(-x * x / 2) / std::sqrt(2 * M_PI); };
  EXPECT_LT(largest_error_ulp(
                -3, 3, [](float x) { return normal_law(x).density; }, density),
            8);
}

}  // namespace
}  // namespace megatron::kernels
