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

}  // namespace
}  // namespace megatron::kernels
