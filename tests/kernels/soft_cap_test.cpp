#include "megatron/kernels/soft_cap.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/kernels/cpu_streams.h"
#include "tests/testing/guarded_tensor.h"
#include "tests/testing/tolerance.h"

namespace megatron::kernels {
namespace {
using testing::GuardedTensor;
using testing::kFloatingTypes;
using testing::random_values;
using testing::tolerance;
using Values = std::vector<double>;

constexpr double kCap = 3;

TEST(SoftCap, MatchesTheFormulasInAllTypes) {
  for (const Shape& shape : {Shape{1, 1}, Shape{5, 7}, Shape{3, 2, 1030}})
    for (DType dtype : kFloatingTypes) {
      SCOPED_TRACE(fmt::format("{} {}", dtype, shape));
      const int64_t n = shape.num_elements();
      GuardedTensor x(dtype, shape, random_values(n, 1, 9), 3), dy(dtype, shape, random_values(n, 2));
      GuardedTensor y(dtype, shape, {}, 1), dx(dtype, shape);
      soft_cap_forward(kTwoThreads, {.x = x.view(), .y = y.view(), .cap = kCap});
      soft_cap_backward(kTwoThreads, {.y = y.view(), .dy = dy.view(), .dx = dx.view(), .cap = kCap});
      for (int64_t i = 0; i < n; ++i) {
        const double expected = kCap * std::tanh(x[i] / kCap), slope = 1 - std::pow(std::tanh(x[i] / kCap), 2);
        ASSERT_NEAR(y[i], expected, tolerance(dtype, 1, kCap)) << i;
        ASSERT_NEAR(dx[i], dy[i] * slope, tolerance(dtype, 1, 2)) << i;  // 1 - t^2 has twice the error of t
      }
      EXPECT_TRUE(y.guards_are_intact() && dx.guards_are_intact());
    }
}

TEST(SoftCap, IsOddAndNeverPassesTheCap) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (DType dtype : kFloatingTypes) {
    GuardedTensor x(dtype, {1, 6}, {-infinity, -1e4, 0, 0.5, 1e4, infinity}), y(dtype, {1, 6}), dx(dtype, {1, 6});
    GuardedTensor dy(dtype, {1, 6}, Values(6, 1));
    soft_cap_forward(kOneThread, {.x = x.view(), .y = y.view(), .cap = kCap});
    soft_cap_backward(kOneThread, {.y = y.view(), .dy = dy.view(), .dx = dx.view(), .cap = kCap});
    EXPECT_EQ(y[0], -kCap);
    EXPECT_EQ(y[1], -kCap);
    EXPECT_EQ(y[2], 0);
    EXPECT_EQ(y[4], kCap);
    EXPECT_EQ(y[5], kCap);
    EXPECT_EQ(dx[0], 0);
    EXPECT_EQ(dx[2], 1);
    EXPECT_EQ(dx[5], 0);
  }
}

TEST(SoftCap, MayWorkInPlace) {
  const Values values = random_values(2 * 700, 4, 9);
  GuardedTensor x(DType::kFloat32, {2, 700}, values), y(DType::kFloat32, {2, 700}),
      dy(DType::kFloat32, {2, 700}, values);
  GuardedTensor dx(DType::kFloat32, {2, 700});
  soft_cap_forward(kOneThread, {.x = x.view(), .y = y.view(), .cap = kCap});
  soft_cap_backward(kOneThread, {.y = y.view(), .dy = dy.view(), .dx = dx.view(), .cap = kCap});
  soft_cap_forward(kTwoThreads, {.x = x.view(), .y = x.view(), .cap = kCap});
  EXPECT_EQ(x.values(), y.values());
  soft_cap_backward(kTwoThreads, {.y = x.view(), .dy = dy.view(), .dx = dy.view(), .cap = kCap});
  EXPECT_EQ(dy.values(), dx.values());
}

}  // namespace
}  // namespace megatron::kernels
