#include "megatron/kernels/weighted_activation.h"

#include <gtest/gtest.h>

#include "tests/kernels/cpu_streams.h"
#include "tests/testing/finite_difference.h"

namespace megatron::kernels {
namespace {
using testing::compute_dtype;
using testing::GuardedTensor;
using testing::kFloatingTypes;
using testing::largest_error;
using testing::random_values;
using testing::tolerance;
using Values = std::vector<double>;

constexpr GateOptions kClamped{.clamp = 0.7, .linear_offset = 0.5};

double silu(double x) { return x / (1 + std::exp(-x)); }
double silu_slope(double x) {
  const double s = 1 / (1 + std::exp(-x));
  return s + x * s * (1 - s);
}

DType dtype_of_weights(DType dtype) { return dtype == DType::kFloat64 ? dtype : DType::kFloat32; }

/// x, weights, dy and results of m rows.
struct RowsCase {
  RowsCase(DType dtype, int64_t m, int64_t f, bool is_gated, int64_t gap = 0)
      : is_gated(is_gated),
        columns(is_gated ? 2 * f : f),
        x(dtype, {m, columns}, random_values(m * columns, 1), gap),
        weights(dtype_of_weights(dtype), {m}, random_values(m, 2)),
        dy(dtype, {m, f}, random_values(m * f, 3), gap),
        y(dtype, {m, f}, {}, gap),
        dx(dtype, {m, columns}, {}, gap),
        dweights(dtype_of_weights(dtype), {m}) {}

  void forward(const CpuStream& stream) {
    weighted_activation_forward(
        stream, {.x = x.view(), .weights = weights.view(), .y = y.view(), .is_gated = is_gated, .options = options});
  }
  void backward(const CpuStream& stream) {
    weighted_activation_backward(stream, {.x = x.view(),
                                          .weights = weights.view(),
                                          .dy = dy.view(),
                                          .dx = dx.view(),
                                          .dweights = dweights.view(),
                                          .is_gated = is_gated,
                                          .options = options});
  }

  bool is_gated;
  int64_t columns;
  GateOptions options;
  GuardedTensor x, weights, dy, y, dx, dweights;
};

TEST(WeightedActivation, MatchesTheFormulasInAllTypesAtOddSizes) {
  for (const DType dtype : kFloatingTypes)
    for (const bool is_gated : {false, true})
      for (const int64_t f : {1, 7, 33, 1030}) {
        SCOPED_TRACE(fmt::format("{} gated {} f {}", dtype, is_gated, f));
        const int64_t m = 5;
        RowsCase c(dtype, m, f, is_gated, 3);
        c.forward(kTwoThreads);
        c.backward(kTwoThreads);
        Values y, dx(static_cast<size_t>(m * c.columns)), dweights(m);
        for (int64_t row = 0; row < m; ++row)
          for (int64_t i = 0; i < f; ++i) {
            const double a = c.x[row * c.columns + i], b = is_gated ? c.x[row * c.columns + f + i] : 1;
            const double p = c.weights[row], dy = c.dy[row * f + i];
            y.push_back(silu(a) * b * p);
            dx[static_cast<size_t>(row * c.columns + i)] = dy * p * b * silu_slope(a);
            if (is_gated) dx[static_cast<size_t>(row * c.columns + f + i)] = dy * p * silu(a);
            dweights[static_cast<size_t>(row)] += dy * silu(a) * b;
          }
        const double rounding = tolerance(compute_dtype(dtype), 1, 8);
        EXPECT_LE(largest_error(c.y, y, rounding, epsilon(dtype)), 1);
        EXPECT_LE(largest_error(c.dx, dx, rounding, epsilon(dtype)), 1);
        EXPECT_LE(largest_error(c.dweights, dweights, tolerance(dtype_of_weights(dtype), f, 8), 0), 1);
        EXPECT_TRUE(c.y.guards_are_intact() && c.dx.guards_are_intact() && c.dweights.guards_are_intact());
      }
}

TEST(WeightedActivation, GradientsMatchFiniteDifferences) {
  for (const bool is_gated : {false, true})
    for (const GateOptions& options : {GateOptions{}, kClamped}) {
      RowsCase c(DType::kFloat64, 3, 5, is_gated);
      c.options = options;
      const auto loss = [&] {
        c.forward(kOneThread);
        return testing::dot(c.y, c.dy);
      };
      c.backward(kOneThread);
      EXPECT_LE(testing::gradient_error(c.x, c.dx, loss), testing::kGradientTolerance);
      EXPECT_LE(testing::gradient_error(c.weights, c.dweights, loss), testing::kGradientTolerance);
    }
}

TEST(WeightedActivation, DoesNotDependOnThreadsOrOnWhichGradientsAreAsked) {
  RowsCase one(DType::kFloat32, 37, 200, true), two(DType::kFloat32, 37, 200, true),
      parts(DType::kFloat32, 37, 200, true);
  one.backward(kOneThread);
  two.backward(kTwoThreads);
  EXPECT_EQ(one.dx.values(), two.dx.values());
  EXPECT_EQ(one.dweights.values(), two.dweights.values());
  WeightedActivationBackwardArgs args{.x = parts.x.view(), .weights = parts.weights.view(), .dy = parts.dy.view()};
  args.is_gated = true;
  args.dweights = parts.dweights.view();
  weighted_activation_backward(kOneThread, args);
  args.dweights = {};
  args.dx = parts.x.view();  // in place
  weighted_activation_backward(kOneThread, args);
  EXPECT_EQ(parts.x.values(), one.dx.values());
  EXPECT_EQ(parts.dweights.values(), one.dweights.values());
}

TEST(WeightedActivation, LeavesRowsPastTheTrueNumberAloneAndTheirWeightsGetNoGradient) {
  const int32_t kCount = 2;
  RowsCase c(DType::kFloat32, 4, 9, true);
  c.dx = GuardedTensor(DType::kFloat32, {4, 18}, Values(4 * 18, 5));
  c.y = GuardedTensor(DType::kFloat32, {4, 9}, Values(4 * 9, 6));
  const auto bounded = [&](auto view) {
    view.count = &kCount;
    view.is_bounded = true;
    return view;
  };
  weighted_activation_forward(
      kTwoThreads, {.x = bounded(c.x.view()), .weights = c.weights.view(), .y = bounded(c.y.view()), .is_gated = true});
  weighted_activation_backward(kTwoThreads, {.x = bounded(c.x.view()),
                                             .weights = c.weights.view(),
                                             .dy = bounded(c.dy.view()),
                                             .dx = bounded(c.dx.view()),
                                             .dweights = c.dweights.view(),
                                             .is_gated = true});
  for (int64_t i = kCount * 18; i < 4 * 18; ++i) EXPECT_EQ(c.dx[i], 5);
  for (int64_t i = kCount * 9; i < 4 * 9; ++i) EXPECT_EQ(c.y[i], 6);
  EXPECT_NE(c.dweights[kCount - 1], 0);
  EXPECT_EQ(c.dweights[kCount], 0);
  EXPECT_EQ(c.dweights[3], 0);
}

}  // namespace
}  // namespace megatron::kernels
