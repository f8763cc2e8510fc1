#include "megatron/kernels/gradient_statistics.h"

#include <gtest/gtest.h>

#include <array>

#include "tests/kernels/cpu_streams.h"
#include "tests/testing/guarded_tensor.h"
#include "tests/testing/tolerance.h"

namespace megatron::kernels {
namespace {
using testing::GuardedTensor;
using testing::kFloatingTypes;
using testing::random_values;
using testing::tolerance;

using Limbs = std::array<int64_t, kSumLimbs>;

ConstView part_of(GuardedTensor& x, int64_t begin, int64_t n) {
  ConstView view = x.view();
  view.data = static_cast<const std::byte*>(view.data) + begin * size_of(view.dtype);
  view.shape = {n};
  return view;
}

double largest_of(GuardedTensor& x, const CpuStream& stream = kTwoThreads) {
  auto workspace = testing::workspace_of(gradient_statistics_workspace_bytes(x.shape()[0]));
  double largest = -1;
  largest_absolute(stream, {.x = x.view(), .result = &largest, .workspace = workspace.view()});
  EXPECT_TRUE(workspace.guards_are_intact());
  return largest;
}

double norm_of(const Limbs& limbs, double largest) {
  StepState state;
  double norm = -1;
  clip_factor(kOneThread, {.largest = &largest, .limbs = limbs.data(), .norm = &norm, .state = &state});
  return norm;
}

double norm_of(GuardedTensor& x, const CpuStream& stream = kTwoThreads) {
  auto workspace = testing::workspace_of(gradient_statistics_workspace_bytes(x.shape()[0]));
  const double largest = largest_of(x, stream);
  Limbs limbs{};
  squared_sum(stream, {.x = x.view(), .largest = &largest, .limbs = limbs.data(), .workspace = workspace.view()});
  EXPECT_TRUE(workspace.guards_are_intact());
  return norm_of(limbs, largest);
}

TEST(GradientStatistics, NormIsThatOfTheElements) {
  for (DType dtype : kFloatingTypes)
    for (int64_t n : {1, 1000, 100001})
      for (double scale : {1e-4, 1.0, 1e3}) {
        GuardedTensor x(dtype, {n}, random_values(n, 1, scale));
        long double expected = 0;
        for (double value : x.values()) expected += static_cast<long double>(value) * value;
        EXPECT_NEAR(norm_of(x) / static_cast<double>(std::sqrt(expected)), 1, tolerance(DType::kFloat64))
            << name_of(dtype) << " n " << n << " scale " << scale;
      }
}

TEST(GradientStatistics, NormDependsNeitherOnThreadsNorOnOrderNorOnCuts) {
  constexpr int64_t n = 100003;
  for (DType dtype : kFloatingTypes) {
    auto values = random_values(n, 1);
    for (size_t i = 0; i < values.size(); i += 7) values[i] *= 1e-4;  // terms of very different sizes
    GuardedTensor x(dtype, {n}, values), reversed(dtype, {n}, std::vector(values.rbegin(), values.rend()));
    const double norm = norm_of(x);
    EXPECT_EQ(norm, norm_of(x, kOneThread));
    EXPECT_EQ(norm, norm_of(reversed));
    const double largest = largest_of(x);
    auto workspace = testing::workspace_of(gradient_statistics_workspace_bytes(n));
    for (int64_t cut : {1, 40, 5000, 16384, 99999}) {
      Limbs sum{}, rank{};  // as one rank with two calls, and as two ranks
      for (const auto& [begin, length] : {std::pair{int64_t{0}, cut}, {cut, n - cut}}) {
        squared_sum(kTwoThreads, {.x = part_of(x, begin, length),
                                  .largest = &largest,
                                  .limbs = sum.data(),
                                  .accumulate = begin > 0,
                                  .workspace = workspace.view()});
        Limbs own{};
        squared_sum(
            kTwoThreads,
            {.x = part_of(x, begin, length), .largest = &largest, .limbs = own.data(), .workspace = workspace.view()});
        for (size_t i = 0; i < own.size(); ++i) rank[i] += own[i];
      }
      EXPECT_EQ(norm_of(sum, largest), norm) << cut;
      EXPECT_EQ(norm_of(rank, largest), norm) << cut;
    }
  }
}

TEST(GradientStatistics, NormNeitherOverflowsNorUnderflows) {
  for (double size : {1e300, 1e-290, 1.7976931348623157e308}) {
    GuardedTensor x(DType::kFloat64, {4}, std::vector<double>(4, size / 4));
    EXPECT_DOUBLE_EQ(norm_of(x), size / 2);
  }
  GuardedTensor zeros(DType::kFloat64, {4}, std::vector<double>(4, 0));
  EXPECT_EQ(norm_of(zeros), 0);
}

TEST(GradientStatistics, CountsZerosOfBothSigns) {
  for (DType dtype : kFloatingTypes) {
    auto values = random_values(40000, 1);
    for (size_t i = 0; i < values.size(); i += 10) values[i] = i % 20 == 0 ? 0.0 : -0.0;
    GuardedTensor x(dtype, {40000}, values);
    auto workspace = testing::workspace_of(gradient_statistics_workspace_bytes(40000));
    int64_t zeros = 100;
    count_zeros(kTwoThreads, {.x = x.view(), .result = &zeros, .accumulate = true, .workspace = workspace.view()});
    EXPECT_EQ(zeros, 4100);
    count_zeros(kOneThread, {.x = x.view(), .result = &zeros, .workspace = workspace.view()});
    EXPECT_EQ(zeros, 4000);
  }
}

TEST(GradientStatistics, EmptyBuffersGiveZero) {
  GuardedTensor x(DType::kFloat32, {0});
  EXPECT_EQ(largest_of(x), 0);
  EXPECT_EQ(norm_of(x), 0);
}

TEST(GradientStatistics, FindsInfinitiesAndNanAnywhere) {
  const auto values = random_values(70000, 1);
  for (DType dtype : kFloatingTypes)
    for (double bad : {HUGE_VAL, -HUGE_VAL, std::nan("")})
      for (int64_t place : {0, 1023, 1024, 69999}) {
        GuardedTensor x(dtype, {70000}, values);
        EXPECT_TRUE(std::isfinite(largest_of(x)));
        x.store(place, bad);
        for (const CpuStream* stream : {&kOneThread, &kTwoThreads}) {
          const double largest = largest_of(x, *stream), norm = norm_of(x, *stream);
          EXPECT_EQ(std::isnan(largest), std::isnan(bad));
          EXPECT_EQ(std::isinf(largest), std::isinf(bad));
          EXPECT_EQ(std::isnan(norm), std::isnan(bad));
          EXPECT_EQ(std::isinf(norm), std::isinf(bad));
        }
      }
}

TEST(GradientStatistics, LargestKeepsWhatItHad) {
  GuardedTensor x(DType::kFloat32, {3}, {-5, 2, 4});
  auto workspace = testing::workspace_of(gradient_statistics_workspace_bytes(3));
  for (const auto& [before, after] : {std::pair{1.0, 5.0}, {7.0, 7.0}, {HUGE_VAL, HUGE_VAL}}) {
    double largest = before;
    largest_absolute(kOneThread,
                     {.x = x.view(), .result = &largest, .accumulate = true, .workspace = workspace.view()});
    EXPECT_EQ(largest, after);
  }
  double nan = std::nan("");
  largest_absolute(kOneThread, {.x = x.view(), .result = &nan, .accumulate = true, .workspace = workspace.view()});
  EXPECT_TRUE(std::isnan(nan));
}

TEST(GradientStatistics, ClipFactorShrinksLargeNormsOnly) {
  StepState state{.inverse_scale = 0.5};
  double norm = 0;
  for (const auto& [size, max_norm, factor] :
       {std::tuple{4.0, 1.0, 1 / (2 + 1e-6)}, {4.0, 3.0, 1.0}, {4.0, 0.0, 1.0}, {0.0, 1.0, 1.0}}) {
    GuardedTensor x(DType::kFloat64, {1}, {size});
    auto workspace = testing::workspace_of(gradient_statistics_workspace_bytes(1));
    Limbs limbs{};
    squared_sum(kOneThread, {.x = x.view(), .largest = &size, .limbs = limbs.data(), .workspace = workspace.view()});
    clip_factor(kOneThread,
                {.largest = &size, .limbs = limbs.data(), .max_norm = max_norm, .norm = &norm, .state = &state});
    EXPECT_DOUBLE_EQ(state.clip_factor, factor);
    EXPECT_DOUBLE_EQ(norm, size / 2);
    clip_factor(kOneThread, {.largest = &size, .limbs = limbs.data(), .max_norm = max_norm, .norm = &norm});
    EXPECT_DOUBLE_EQ(norm, size) << "without a state there is no scale";
  }
}

TEST(GradientStatistics, OverflowIsFoundWhereItIsAskedFor) {
  const Limbs limbs{};
  for (const bool asked : {false, true})
    for (const double largest : {1.0, HUGE_VAL, std::nan("")}) {
      StepState state;
      double norm = 0;
      clip_factor(
          kOneThread,
          {.largest = &largest, .limbs = limbs.data(), .norm = &norm, .state = &state, .finds_overflow = asked});
      EXPECT_EQ(state.found_inf, asked && !std::isfinite(largest) ? 1 : 0);
    }
  for (const int64_t overflow : {0, 1}) {
    StepState state;
    double norm = 0, largest = 1;
    clip_factor(
        kOneThread,
        {.largest = &largest, .limbs = limbs.data(), .norm = &norm, .state = &state, .extent_overflow = &overflow});
    EXPECT_EQ(state.found_inf, overflow);
  }
}

}  // namespace
}  // namespace megatron::kernels
