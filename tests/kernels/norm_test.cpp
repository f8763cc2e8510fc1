// RMS and layer normalisation: one reference, both kernels.
#include <gtest/gtest.h>

#include "megatron/kernels/layer_norm.h"
#include "megatron/kernels/rms_norm.h"
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

/// Operands and results of one forward and backward call.
struct NormCase {
  NormCase(DType dtype, const Shape& shape, bool is_layer, int64_t gap = 0)
      : layer(is_layer), h(shape[-1]), rows(shape.num_elements() / std::max<int64_t>(h, 1)) {
    const int64_t n = shape.num_elements();
    const DType statistics = compute_dtype(dtype);
    x = GuardedTensor(dtype, shape, random_values(n, 1), gap);
    residual = GuardedTensor(dtype, shape, random_values(n, 2, 0.5), gap);
    gamma = GuardedTensor(dtype, {h}, random_values(h, 3));
    beta = GuardedTensor(dtype, {h}, random_values(h, 4));
    dy = GuardedTensor(dtype, shape, random_values(n, 5), gap);
    dresidual = GuardedTensor(dtype, shape, random_values(n, 6), gap);
    residual_out = GuardedTensor(dtype, shape, {}, gap);
    y = GuardedTensor(dtype, shape, {}, gap);
    dx = GuardedTensor(dtype, shape, {}, gap);
    mean = GuardedTensor(statistics, {rows});
    rstd = GuardedTensor(statistics, {rows});
    dgamma = GuardedTensor(statistics, {h}, random_values(h, 7));
    dbeta = GuardedTensor(statistics, {h}, random_values(h, 8));
    workspace = testing::workspace_of(layer ? layer_norm_backward_workspace_bytes(rows, h, dtype)
                                            : rms_norm_backward_workspace_bytes(rows, h, dtype));
  }
  void forward(const CpuStream& stream, bool with_residual, const int32_t* count = nullptr) {
    const ConstView other = with_residual ? residual.bounded(count) : View{};
    const View sum = with_residual ? residual_out.bounded(count) : View{};
    if (layer)
      layer_norm_forward(stream, {x.bounded(count), other, gamma.view(), beta.view(), sum, y.bounded(count),
                                  mean.view(), rstd.view(), eps, zero_centered});
    else
      rms_norm_forward(stream,
                       {x.bounded(count), other, gamma.view(), sum, y.bounded(count), rstd.view(), eps, zero_centered});
  }
  /// Normalised is x (forward without residual).
  void backward(const CpuStream& stream, bool with_dresidual, bool accumulate, const int32_t* count = nullptr) {
    const ConstView other = with_dresidual ? dresidual.bounded(count) : View{};
    if (layer)
      layer_norm_backward(
          stream, {x.bounded(count), gamma.view(), mean.view(), rstd.view(), dy.bounded(count), other,
                   dx.bounded(count), dgamma.view(), dbeta.view(), accumulate, zero_centered, workspace.view()});
    else
      rms_norm_backward(stream, {x.bounded(count), gamma.view(), rstd.view(), dy.bounded(count), other,
                                 dx.bounded(count), dgamma.view(), accumulate, zero_centered, workspace.view()});
  }
  bool guards_are_intact() const {
    for (const auto* t : {&x, &residual_out, &y, &dx, &mean, &rstd, &dgamma, &dbeta, &workspace})
      if (!t->guards_are_intact()) return false;
    return true;
  }

  bool layer, zero_centered = false;
  int64_t h, rows;
  double eps = 1e-3;
  GuardedTensor x, residual, gamma, beta, dy, dresidual, residual_out, y, dx, mean, rstd, dgamma, dbeta, workspace;
};

/// The expected results of a case, from the formulas.
struct Expected {
  Values y, mean, rstd, dx, dgamma, dbeta;
};
Expected reference(const NormCase& c, const GuardedTensor& z) {
  Expected e{Values(z.values().size()), Values(c.rows), Values(c.rows),
             Values(z.values().size()), Values(c.h),    Values(c.h)};
  for (int64_t row = 0; row < c.rows; ++row) {
    double mean = 0, squares = 0, sum_g = 0, sum_g_xhat = 0;
    for (int64_t i = 0; i < c.h; ++i) mean += c.layer ? z[row * c.h + i] / static_cast<double>(c.h) : 0;
    for (int64_t i = 0; i < c.h; ++i) squares += std::pow(z[row * c.h + i] - mean, 2);
    const double rstd = 1 / std::sqrt(squares / static_cast<double>(c.h) + c.eps);
    const auto gamma = [&](int64_t i) { return c.gamma[i] + (c.zero_centered ? 1 : 0); };
    for (int64_t i = 0; i < c.h; ++i) {
      const int64_t at = row * c.h + i;
      const double xhat = (z[at] - mean) * rstd, g = c.dy[at] * gamma(i);
      e.y[at] = xhat * gamma(i) + (c.layer ? c.beta[i] : 0);
      e.dgamma[i] += c.dy[at] * xhat;
      e.dbeta[i] += c.dy[at];
      sum_g += c.layer ? g : 0;
      sum_g_xhat += g * xhat;
    }
    for (int64_t i = 0; i < c.h; ++i) {
      const int64_t at = row * c.h + i;
      const double xhat = (z[at] - mean) * rstd;
      e.dx[at] = rstd * (c.dy[at] * gamma(i) - (sum_g + xhat * sum_g_xhat) / static_cast<double>(c.h));
    }
    e.mean[row] = mean;
    e.rstd[row] = rstd;
  }
  return e;
}
Values plus(Values a, const GuardedTensor& b) {
  for (size_t i = 0; i < a.size(); ++i) a[i] += b[static_cast<int64_t>(i)];
  return a;
}

class Norm : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Kinds, Norm, ::testing::Bool(),
                         [](const auto& kind) { return kind.param ? "LayerNorm" : "RmsNorm"; });

TEST_P(Norm, MatchesTheFormulasInAllTypesAndShapes) {
  for (DType dtype : kFloatingTypes)
    for (const Shape& shape : {Shape{3, 2, 8}, Shape{5, 1}, Shape{2, 3, 1025}, Shape{40, 7, 33}})
      for (int64_t gap : {0, 5}) {
        NormCase c(dtype, shape, GetParam(), gap);
        c.zero_centered = gap != 0;
        c.forward(kTwoThreads, false);
        c.backward(kTwoThreads, false, false);
        Expected e = reference(c, c.x);
        const DType compute = compute_dtype(dtype);
        // |rstd| <= 1 / sqrt(eps) scales the rounding of z - mean where a row has one element.
        const double sums = tolerance(compute, c.h, shape[-1] == 1 ? 32 : 4), eps = epsilon(dtype);
        EXPECT_LE(largest_error(c.y, e.y, sums, eps), 1) << name_of(dtype) << shape.to_string();
        EXPECT_LE(largest_error(c.rstd, e.rstd, 0, sums), 1);
        if (GetParam()) {
          EXPECT_LE(largest_error(c.mean, e.mean, sums, 0), 1);
        }
        EXPECT_LE(largest_error(c.dx, e.dx, sums * 8, eps), 1) << name_of(dtype) << shape.to_string();
        const double columns = tolerance(compute, c.rows, 4 * std::sqrt(c.rows));
        EXPECT_LE(largest_error(c.dgamma, e.dgamma, columns, 0), 1) << name_of(dtype) << shape.to_string();
        if (GetParam()) {
          EXPECT_LE(largest_error(c.dbeta, e.dbeta, columns, 0), 1);
        }
        EXPECT_TRUE(c.guards_are_intact());
        c.backward(kTwoThreads, false, true);
        for (double& value : e.dgamma) value *= 2;
        EXPECT_LE(largest_error(c.dgamma, e.dgamma, 2 * columns, 0), 1);
      }
}

TEST_P(Norm, ResidualIsAddedRoundedAndKept) {
  for (DType dtype : kFloatingTypes) {
    NormCase c(dtype, {4, 3, 1100}, GetParam());
    c.forward(kOneThread, true);
    const Values sum = plus(c.x.values(), c.residual);
    const GuardedTensor rounded(dtype, c.x.shape(), sum);
    EXPECT_LE(largest_error(c.residual_out, rounded.values(), 0, dtype == DType::kFloat32 ? epsilon(dtype) : 0), 1);
    EXPECT_LE(largest_error(c.y, reference(c, c.residual_out).y, tolerance(compute_dtype(dtype), c.h), epsilon(dtype)),
              1);
    EXPECT_TRUE(c.guards_are_intact());
  }
}

TEST_P(Norm, MixesAnFp32ResidualStreamWithBf16Weights) {
  NormCase c(DType::kBFloat16, {6, 64}, GetParam());
  c.residual = GuardedTensor(DType::kFloat32, {6, 64}, random_values(384, 9));
  c.residual_out = GuardedTensor(DType::kFloat32, {6, 64});
  c.forward(kOneThread, true);
  EXPECT_EQ(c.residual_out.values(), GuardedTensor(DType::kFloat32, {6, 64}, plus(c.x.values(), c.residual)).values());
  EXPECT_LE(largest_error(c.y, reference(c, c.residual_out).y, tolerance(DType::kFloat32, 64), epsilon(c.y.dtype())),
            1);
}

TEST_P(Norm, GradientsMatchFiniteDifferences) {
  for (bool zero_centered : {false, true}) {
    NormCase c(DType::kFloat64, {2, 3, 7}, GetParam());
    c.zero_centered = zero_centered;
    const auto loss = [&] {
      c.forward(kOneThread, false);
      return testing::dot(c.y, c.dy) + testing::dot(c.x, c.dresidual);
    };
    loss();
    c.backward(kOneThread, true, false);
    EXPECT_LE(testing::gradient_error(c.x, c.dx, loss), testing::kGradientTolerance);
    EXPECT_LE(testing::gradient_error(c.gamma, c.dgamma, loss), testing::kGradientTolerance);
    if (GetParam()) {
      EXPECT_LE(testing::gradient_error(c.beta, c.dbeta, loss), testing::kGradientTolerance);
    }
  }
}

TEST_P(Norm, ResultsDoNotDependOnTheNumberOfThreads) {
  Values results[2][3];
  for (int threads : {1, 2}) {
    NormCase c(DType::kFloat32, {700, 130}, GetParam());
    c.forward({.num_threads = threads}, false);
    c.backward({.num_threads = threads}, true, true);
    results[threads - 1][0] = c.y.values();
    results[threads - 1][1] = c.dx.values();
    results[threads - 1][2] = c.dgamma.values();
  }
  for (int i = 0; i < 3; ++i) EXPECT_EQ(results[0][i], results[1][i]);
}

TEST_P(Norm, BoundedRowsBeyondTheCountTakeNoPart) {
  for (int32_t count : {0, 3, 9}) {
    NormCase c(DType::kFloat32, {5, 2, 16}, GetParam()), whole(DType::kFloat32, {5, 2, 16}, GetParam());
    for (GuardedTensor* dy : {&c.dy, &whole.dy})
      for (int64_t i = std::min(count, 5) * 32; i < 160; ++i) dy->store(i, 0);
    c.y.set(Values(160, 9));
    c.forward(kOneThread, false, &count);
    c.backward(kOneThread, false, false, &count);
    whole.forward(kOneThread, false);
    whole.backward(kOneThread, false, false);
    for (int64_t i = 0; i < 160; ++i) EXPECT_EQ(c.y[i], i < count * 32 ? whole.y[i] : 9);
    EXPECT_LE(largest_error(c.dgamma, whole.dgamma.values(), tolerance(DType::kFloat32, 10), 0), 1);
    EXPECT_TRUE(c.guards_are_intact());
  }
}

TEST_P(Norm, OptionalOperandsMayBeLeftOut) {
  NormCase c(DType::kFloat32, {4, 8}, GetParam());
  c.gamma.set(Values(8, 1));
  c.beta.set(Values(8, 0));
  c.forward(kOneThread, false);
  c.backward(kOneThread, false, false);
  GuardedTensor y(DType::kFloat32, {4, 8}), dx(DType::kFloat32, {4, 8});
  if (GetParam()) {
    layer_norm_forward(kOneThread, {.x = c.x.view(), .y = y.view(), .eps = c.eps});
    layer_norm_backward(
        kOneThread,
        {.x = c.x.view(), .mean = c.mean.view(), .rstd = c.rstd.view(), .dy = c.dy.view(), .dx = dx.view()});
  } else {
    rms_norm_forward(kOneThread, {.x = c.x.view(), .y = y.view(), .eps = c.eps});
    rms_norm_backward(kOneThread, {.x = c.x.view(), .rstd = c.rstd.view(), .dy = c.dy.view(), .dx = dx.view()});
  }
  EXPECT_EQ(y.values(), c.y.values());
  EXPECT_EQ(dx.values(), c.dx.values());
}

TEST(LayerNorm, KeepsThePrecisionOfRowsFarFromZero) {
  NormCase c(DType::kFloat32, {2, 4096}, true);
  Values values = random_values(8192, 3);
  for (double& value : values) value += 1000;
  c.x.set(values);
  c.forward(kOneThread, false);
  EXPECT_LE(largest_error(c.y, reference(c, c.x).y, tolerance(DType::kFloat32, 1, 1000), 0), 1);
}

}  // namespace
}  // namespace megatron::kernels
