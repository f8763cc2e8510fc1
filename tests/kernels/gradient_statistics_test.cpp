#include "megatron/kernels/gradient_statistics.h"

#include <gtest/gtest.h>

#include "tests/testing/guarded_tensor.h"
#include "tests/testing/tolerance.h"

namespace megatron::kernels {
namespace {
using testing::GuardedTensor;
using testing::kFloatingTypes;
using testing::random_values;
using testing::tolerance;

const CpuStream kOneThread{.num_threads = 1};
const CpuStream kTwoThreads{.num_threads = 2};

TEST(GradientStatistics, SquaredNormIsFp64AndIndependentOfThreads) {
  for (DType dtype : kFloatingTypes)
    for (int64_t n : {1, 1000, 100001}) {
      GuardedTensor x(dtype, {n}, random_values(n, 1));
      auto workspace = testing::workspace_of(gradient_statistics_workspace_bytes(n));
      double expected = 0;
      for (double value : x.values()) expected += value * value;
      double one = -1, two = -1;
      squared_norm(kOneThread, {.x = x.view(), .result = &one, .workspace = workspace.view()});
      squared_norm(kTwoThreads, {.x = x.view(), .result = &two, .workspace = workspace.view()});
      EXPECT_EQ(one, two);
      EXPECT_NEAR(one / expected, 1, tolerance(DType::kFloat64, n));
      squared_norm(kTwoThreads, {.x = x.view(), .result = &two, .accumulate = true, .workspace = workspace.view()});
      EXPECT_EQ(two, one + one);
      EXPECT_TRUE(workspace.guards_are_intact());
    }
}

TEST(GradientStatistics, CountsZerosOfBothSigns) {
  for (DType dtype : kFloatingTypes) {
    auto values = random_values(40000, 1);
    for (size_t i = 0; i < values.size(); i += 10) values[i] = i % 20 == 0 ? 0.0 : -0.0;
    GuardedTensor x(dtype, {40000}, values);
    auto workspace = testing::workspace_of(gradient_statistics_workspace_bytes(40000));
    double zeros = 100;
    count_zeros(kTwoThreads, {.x = x.view(), .result = &zeros, .accumulate = true, .workspace = workspace.view()});
    EXPECT_EQ(zeros, 4100);
    count_zeros(kOneThread, {.x = x.view(), .result = &zeros, .workspace = workspace.view()});
    EXPECT_EQ(zeros, 4000);
  }
}

TEST(GradientStatistics, EmptyBuffersGiveZero) {
  GuardedTensor x(DType::kFloat32, {0});
  auto workspace = testing::workspace_of(gradient_statistics_workspace_bytes(0));
  double result = 7;
  squared_norm(kOneThread, {.x = x.view(), .result = &result, .workspace = workspace.view()});
  EXPECT_EQ(result, 0);
}

TEST(GradientStatistics, FindsInfinitiesAndNanAnywhere) {
  const auto values = random_values(70000, 1);
  for (DType dtype : kFloatingTypes)
    for (double bad : {HUGE_VAL, -HUGE_VAL, std::nan("")})
      for (int64_t place : {-1, 0, 1023, 1024, 69999}) {
        GuardedTensor x(dtype, {70000}, values);
        if (place >= 0) x.store(place, bad);
        StepState state;
        check_finite(kTwoThreads, {.x = x.view(), .state = &state});
        EXPECT_EQ(state.found_inf, place >= 0 ? 1 : 0);
        x.store(std::max<int64_t>(place, 0), 1);
        check_finite(kOneThread, {.x = x.view(), .state = &state});
        EXPECT_EQ(state.found_inf, place >= 0 ? 1 : 0);  // never cleared
      }
}

TEST(GradientStatistics, ClipFactorShrinksLargeNormsOnly) {
  StepState state{.inverse_scale = 0.5};
  double norm = 0;
  for (const auto& [square, max_norm, factor] :
       {std::tuple{16.0, 1.0, 1 / (2 + 1e-6)}, {16.0, 3.0, 1.0}, {16.0, 0.0, 1.0}, {0.0, 1.0, 1.0}}) {
    clip_factor(kOneThread, {.squared_norm = &square, .max_norm = max_norm, .norm = &norm, .state = &state});
    EXPECT_DOUBLE_EQ(state.clip_factor, factor);
    EXPECT_DOUBLE_EQ(norm, std::sqrt(square) / 2);
  }
}

}  // namespace
}  // namespace megatron::kernels
