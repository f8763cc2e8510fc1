#include "megatron/kernels/gather_rows.h"

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

TEST(GatherRows, TakesAndWeighsRows) {
  const Values list{3, -1, 0, 3, 5, 2};
  for (DType dtype : kFloatingTypes)
    for (int64_t h : {3, 15000}) {
      GuardedTensor x(dtype, {6, h}, random_values(6 * h, 1), 2), y(dtype, {6, h}, {}, 1);
      GuardedTensor index(DType::kInt32, {6}, list), weights(compute_dtype(dtype), {6}, random_values(6, 2));
      for (bool has_weights : {false, true}) {
        gather_rows(
            kTwoThreads,
            {.x = x.view(), .index = index.view(), .weights = has_weights ? weights.view() : View{}, .y = y.view()});
        Values expected(6 * h, 0);
        for (int64_t i = 0; i < 6 * h; ++i)
          if (list[i / h] >= 0)
            expected[i] = (has_weights ? weights[i / h] : 1) * x[static_cast<int64_t>(list[i / h]) * h + i % h];
        EXPECT_LE(largest_error(y, expected, has_weights ? tolerance(compute_dtype(dtype)) : 0,
                                has_weights ? epsilon(dtype) : 0),
                  1);
        EXPECT_TRUE(y.guards_are_intact());
      }
    }
}

TEST(GatherRows, OverflowOfTheCapacityIsRaised) {
  GuardedTensor x(DType::kFloat32, {4, 2}, random_values(8, 1)), index(DType::kInt32, {3}, {0, 1, 2});
  auto workspace = testing::workspace_of(scatter_add_rows_workspace_bytes(3));
  for (int32_t count : {0, 2, 3, 4}) {
    GuardedTensor y(DType::kFloat32, {3, 2}, Values(6, 9)), back(DType::kFloat32, {4, 2});
    StepState gathered, scattered;
    gather_rows(kOneThread, {.x = x.view(), .index = index.view(), .y = y.bounded(&count), .state = &gathered});
    scatter_add_rows(kOneThread, {.x = y.bounded(&count),
                                  .index = index.view(),
                                  .y = back.view(),
                                  .workspace = workspace.view(),
                                  .state = &scattered});
    EXPECT_EQ(gathered.overflow, count > 3);
    EXPECT_EQ(scattered.overflow, count > 3);
    for (int64_t i = 0; i < 6; ++i) EXPECT_EQ(y[i], i / 2 < count ? x[i] : 9);
    for (int64_t i = 0; i < 8; ++i) EXPECT_EQ(back[i], i / 2 < std::min(count, 3) ? x[i] : 0);
    EXPECT_TRUE(y.guards_are_intact() && back.guards_are_intact());
  }
}

TEST(ScatterAddRows, SumsRowsOfOneTargetAndIsTheGradientOfGather) {
  const Values list{3, -1, 0, 3, 3, 2};
  for (DType dtype : kFloatingTypes) {
    const int64_t h = 11000;
    GuardedTensor x(dtype, {6, h}, random_values(6 * h, 1)), index(DType::kInt32, {6}, list);
    auto workspace = testing::workspace_of(scatter_add_rows_workspace_bytes(6));
    for (bool accumulate : {false, true}) {
      GuardedTensor y(dtype, {4, h}, random_values(4 * h, 2));
      Values expected = accumulate ? y.values() : Values(4 * h, 0);
      for (int64_t i = 0; i < 6 * h; ++i)
        if (list[i / h] >= 0) expected[static_cast<int64_t>(list[i / h]) * h + i % h] += x[i];
      scatter_add_rows(kTwoThreads, {.x = x.view(),
                                     .index = index.view(),
                                     .y = y.view(),
                                     .accumulate = accumulate,
                                     .workspace = workspace.view()});
      EXPECT_LE(largest_error(y, expected, tolerance(compute_dtype(dtype), 4, 2), epsilon(dtype)), 1);
      EXPECT_TRUE(y.guards_are_intact() && workspace.guards_are_intact());
    }
  }
}

/// Four tokens, two choices each, some dropped; six slots of which one is empty.
const Values kSlots{0, 3, 1, -1, -1, -1, 5, 2};

TEST(CombineRows, MatchesTheFormulasInAllTypes) {
  for (DType dtype : kFloatingTypes)
    for (int64_t h : {5, 11000}) {
      const DType compute = compute_dtype(dtype);
      GuardedTensor x(dtype, {6, h}, random_values(6 * h, 1)), slots(DType::kInt32, {4, 2}, kSlots);
      GuardedTensor weights(compute, {4, 2}, random_values(8, 2)), y(dtype, {4, h});
      GuardedTensor dy(dtype, {4, h}, random_values(4 * h, 3)), dx(dtype, {6, h}), dweights(compute, {4, 2});
      combine_rows_forward(kTwoThreads,
                           {.x = x.view(), .slots = slots.view(), .weights = weights.view(), .y = y.view()});
      combine_rows_backward(kTwoThreads, {.x = x.view(),
                                          .slots = slots.view(),
                                          .weights = weights.view(),
                                          .dy = dy.view(),
                                          .dx = dx.view(),
                                          .dweights = dweights.view()});
      Values ys(4 * h, 0), dxs(6 * h, 0), dws(8, 0);
      for (int64_t choice = 0; choice < 8; ++choice)
        for (int64_t i = 0; i < h && kSlots[choice] >= 0; ++i) {
          const int64_t from = static_cast<int64_t>(kSlots[choice]) * h + i, to = choice / 2 * h + i;
          ys[to] += weights[choice] * x[from];
          dxs[from] = weights[choice] * dy[to];
          dws[choice] += dy[to] * x[from];
        }
      EXPECT_LE(largest_error(y, ys, tolerance(compute, 2, 4), epsilon(dtype)), 1);
      EXPECT_LE(largest_error(dx, dxs, tolerance(compute, 1, 4), epsilon(dtype)), 1);
      EXPECT_LE(largest_error(dweights, dws, tolerance(compute, h, std::sqrt(h)), 0), 1);
      EXPECT_TRUE(y.guards_are_intact() && dx.guards_are_intact() && dweights.guards_are_intact());
    }
}

TEST(CombineRows, GradientsMatchFiniteDifferences) {
  GuardedTensor x(DType::kFloat64, {6, 3}, random_values(18, 1)), slots(DType::kInt32, {4, 2}, kSlots);
  GuardedTensor weights(DType::kFloat64, {4, 2}, random_values(8, 2)), y(DType::kFloat64, {4, 3});
  GuardedTensor dy(DType::kFloat64, {4, 3}, random_values(12, 3)), dx(DType::kFloat64, {6, 3});
  GuardedTensor dweights(DType::kFloat64, {4, 2});
  const auto loss = [&] {
    combine_rows_forward(kOneThread, {.x = x.view(), .slots = slots.view(), .weights = weights.view(), .y = y.view()});
    return testing::dot(y, dy);
  };
  combine_rows_backward(kOneThread, {.x = x.view(),
                                     .slots = slots.view(),
                                     .weights = weights.view(),
                                     .dy = dy.view(),
                                     .dx = dx.view(),
                                     .dweights = dweights.view()});
  EXPECT_LE(testing::gradient_error(x, dx, loss), testing::kGradientTolerance);
  EXPECT_LE(testing::gradient_error(weights, dweights, loss), testing::kGradientTolerance);
}

}  // namespace
}  // namespace megatron::kernels
