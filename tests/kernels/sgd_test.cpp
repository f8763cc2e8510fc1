#include "megatron/kernels/sgd.h"

#include <gtest/gtest.h>

#include "tests/testing/guarded_tensor.h"
#include "tests/testing/tolerance.h"

namespace megatron::kernels {
namespace {
using testing::GuardedTensor;
using testing::largest_error;
using testing::random_values;
using testing::tolerance;
using Values = std::vector<double>;

TEST(Sgd, FollowsTheFormulaOverSteps) {
  const int64_t n = 1500;
  for (DType dtype : {DType::kFloat64, DType::kFloat32})
    for (double momentum : {0.0, 0.9}) {
      GuardedTensor p(dtype, {n}, random_values(n, 1)), g(dtype, {n}, random_values(n, 2));
      GuardedTensor m(dtype, {n}, Values(n, 0));
      GuardedTensor weight(dtype == DType::kFloat64 ? dtype : DType::kBFloat16, {n});
      StepState state{.inverse_scale = 0.5, .clip_factor = 0.5, .learning_rate = 0.1, .weight_decay = 0.02};
      Values expected_p = p.values(), expected_m(n, 0);
      for (int t = 0; t < 4; ++t) {
        sgd({.num_threads = 2}, {.parameter = p.view(),
                                 .gradient = g.view(),
                                 .momentum_buffer = momentum == 0 ? View{} : m.view(),
                                 .model_weight = weight.view(),
                                 .momentum = momentum,
                                 .learning_rate_multiplier = 2,
                                 .weight_decay_multiplier = 3,
                                 .state = &state});
        for (int64_t i = 0; i < n; ++i) {
          expected_m[i] = momentum * expected_m[i] + g[i] * 0.25 + 0.06 * expected_p[i];
          expected_p[i] -= 0.2 * expected_m[i];
        }
      }
      EXPECT_LE(largest_error(p, expected_p, tolerance(dtype, 4), epsilon(dtype)), 1);
      EXPECT_EQ(weight.values(), GuardedTensor(weight.dtype(), {n}, p.values()).values());
      EXPECT_TRUE(p.guards_are_intact() && m.guards_are_intact() && weight.guards_are_intact());
      const Values before = p.values();
      state.found_inf = 1;
      sgd({.num_threads = 1}, {.parameter = p.view(), .gradient = g.view(), .momentum = 0, .state = &state});
      EXPECT_EQ(p.values(), before);
    }
}

TEST(Sgd, StepsRangesOfATableAsItStepsOne) {
  const StepState state{.inverse_scale = 0.5, .learning_rate = 0.1, .weight_decay = 0.02};
  std::vector<GuardedTensor> p[2], g, m[2];
  std::vector<OptimizerRange> table;
  for (int64_t n : {int64_t{3}, kRangeChunk + 1, int64_t{500}}) {
    g.emplace_back(DType::kBFloat16, Shape{n}, random_values(n, 2));
    for (int i = 0; i < 2; ++i) {
      p[i].emplace_back(DType::kFloat32, Shape{n}, random_values(n, 1));
      m[i].emplace_back(DType::kFloat32, Shape{n}, random_values(n, 3));
    }
    const double decay = n == 3 ? 0 : 1;
    table.push_back({.parameter = p[0].back().view().data,
                     .gradient = g.back().view().data,
                     .first_moment = m[0].back().view().data,
                     .weight_decay_multiplier = decay,
                     .size = n});
    sgd({.num_threads = 2}, {.parameter = p[1].back().view(),
                             .gradient = g.back().view(),
                             .momentum_buffer = m[1].back().view(),
                             .weight_decay_multiplier = decay,
                             .state = &state});
  }
  sgd_ranges(
      {.num_threads = 2},
      {.ranges = {.table = table.data(), .num_ranges = 3, .dtypes = {.gradient = DType::kBFloat16}}, .state = &state});
  for (size_t i = 0; i < table.size(); ++i) {
    EXPECT_EQ(p[0][i].values(), p[1][i].values());
    EXPECT_EQ(m[0][i].values(), m[1][i].values());
  }
}

}  // namespace
}  // namespace megatron::kernels
