#include "megatron/kernels/embedding.h"

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

/// Ids in [0, v), the low ones frequent.
Values random_ids(int64_t n, int64_t v) {
  Values ids;
  for (int64_t i = 0; i < n; ++i)
    ids.push_back(std::floor(std::pow(uniform(RandomKey::from_seed(9), i), 3) * static_cast<double>(v)));
  return ids;
}

TEST(Embedding, GathersAndSumsGradientsInAllTypes) {
  const int64_t s = 40, b = 3, n = s * b, v = 17;
  for (DType dtype : kFloatingTypes)
    for (DType id_type : {DType::kInt32, DType::kInt64})
      for (int64_t h : {5, 1100})
        for (int64_t first_id : {0, 11}) {  // the second: a shard of 17 rows from id 11 on
          GuardedTensor ids(id_type, {b, s}, random_ids(n, 30)), table(dtype, {v, h}, random_values(v * h, 1), 2);
          GuardedTensor y(dtype, {s, b, h}, {}, 3), dy(dtype, {s, b, h}, random_values(n * h, 2));
          GuardedTensor dtable(compute_dtype(dtype), {v, h});
          auto workspace = testing::workspace_of(embedding_backward_workspace_bytes(n));
          View transposed = ids.view();  // the loader's [b, s] seen as [s, b]
          std::swap(transposed.shape[0], transposed.shape[1]);
          std::swap(transposed.strides[0], transposed.strides[1]);
          const EmbeddingIndex index{.ids = transposed, .first_id = first_id};
          embedding_forward(kTwoThreads, {.index = index, .table = table.view(), .y = y.view()});
          Values ys(n * h, 0), sums(v * h, 0);
          for (int64_t row = 0; row < n; ++row) {
            const auto table_row = static_cast<int64_t>(ids[row % b * s + row / b]) - first_id;
            for (int64_t i = 0; i < h && table_row >= 0 && table_row < v; ++i) {
              ys[row * h + i] = table[table_row * h + i];
              sums[table_row * h + i] += dy[row * h + i];
            }
          }
          EXPECT_EQ(y.values(), ys);
          embedding_backward(kTwoThreads,
                             {.index = index, .dy = dy.view(), .dtable = dtable.view(), .workspace = workspace.view()});
          const double bound = tolerance(compute_dtype(dtype), n, std::sqrt(n));
          EXPECT_LE(largest_error(dtable, sums, bound, 0), 1) << name_of(dtype);
          embedding_backward(kTwoThreads, {.index = index,
                                           .dy = dy.view(),
                                           .dtable = dtable.view(),
                                           .accumulate = true,
                                           .workspace = workspace.view()});
          for (double& sum : sums) sum *= 2;
          EXPECT_LE(largest_error(dtable, sums, 2 * bound, 0), 1);
          EXPECT_TRUE(y.guards_are_intact() && dtable.guards_are_intact() && workspace.guards_are_intact());
        }
}

TEST(Embedding, LowPrecisionGradientsAreRoundedOnce) {
  const int64_t n = 1000;  // of one token: summed in bf16, the gradient would stop growing at 256
  GuardedTensor ids(DType::kInt32, {n, 1}, Values(n, 2)), dy(DType::kBFloat16, {n, 1, 4}, Values(4 * n, 1));
  GuardedTensor dtable(DType::kBFloat16, {3, 4});
  auto workspace = testing::workspace_of(embedding_backward_workspace_bytes(n));
  embedding_backward(
      kTwoThreads,
      {.index = {.ids = ids.view()}, .dy = dy.view(), .dtable = dtable.view(), .workspace = workspace.view()});
  EXPECT_EQ(dtable.values(), (Values{0, 0, 0, 0, 0, 0, 0, 0, n, n, n, n}));
  ids.store(0, 1);
  embedding_backward(kOneThread, {.index = {.ids = ids.view()},
                                  .dy = dy.view(),
                                  .dtable = dtable.view(),
                                  .accumulate = true,
                                  .workspace = workspace.view()});
  EXPECT_EQ(dtable.values(), (Values{0, 0, 0, 0, 1, 1, 1, 1, 2000, 2000, 2000, 2000}));  // 1999 is no bf16
}

TEST(Embedding, AddsLearnedPositions) {
  const int64_t s = 6, b = 2, h = 8;
  GuardedTensor y(DType::kFloat32, {s, b, h}, random_values(s * b * h, 1)),
      table(DType::kFloat32, {10, h}, random_values(10 * h, 2));
  const Values old = y.values();
  const std::vector<int32_t> positions{0, 0, 1, 1, 2, 2, 3, 0, 4, 1, 5, 2};  // column 1 starts a document at row 3
  const SequenceLayoutView layout{.s = s, .b = b, .positions = positions.data()};
  embedding_forward(kOneThread,
                    {.index = {.layout = layout}, .table = table.view(), .y = y.view(), .accumulate = true});
  Values expected = old;
  for (int64_t i = 0; i < s * b * h; ++i)
    expected[i] = static_cast<float>(old[i] + table[positions[i / h] * h + i % h]);
  EXPECT_LE(largest_error(y, expected, tolerance(DType::kFloat32), 0), 1);

  const SequenceLayoutView shifted{.s = s, .b = b, .first_position = 4};  // no list: 4 + row
  y.set(old);
  embedding_forward(kOneThread,
                    {.index = {.layout = shifted}, .table = table.view(), .y = y.view(), .accumulate = true});
  for (int64_t i = 0; i < s * b * h; ++i) EXPECT_NEAR(y[i], old[i] + table[(4 + i / (b * h)) * h + i % h], 1e-6);
}

TEST(Embedding, GradientsMatchFiniteDifferences) {
  const int64_t n = 12, v = 5, h = 3;
  GuardedTensor ids(DType::kInt64, {n}, random_ids(n, v)), table(DType::kFloat64, {v, h}, random_values(v * h, 1));
  GuardedTensor y(DType::kFloat64, {n, h}), dy(DType::kFloat64, {n, h}, random_values(n * h, 2));
  GuardedTensor dtable(DType::kFloat64, {v, h});
  auto workspace = testing::workspace_of(embedding_backward_workspace_bytes(n));
  embedding_backward(
      kOneThread,
      {.index = {.ids = ids.view()}, .dy = dy.view(), .dtable = dtable.view(), .workspace = workspace.view()});
  const auto loss = [&] {
    embedding_forward(kOneThread, {.index = {.ids = ids.view()}, .table = table.view(), .y = y.view()});
    return testing::dot(y, dy);
  };
  EXPECT_LE(testing::gradient_error(table, dtable, loss), testing::kGradientTolerance);
}

TEST(Embedding, GradientDoesNotDependOnTheNumberOfThreads) {
  const int64_t n = 3000, v = 100, h = 200;
  GuardedTensor ids(DType::kInt32, {n}, random_ids(n, v)), dy(DType::kFloat32, {n, h}, random_values(n * h, 2));
  auto workspace = testing::workspace_of(embedding_backward_workspace_bytes(n));
  Values results[2];
  for (int threads : {1, 2}) {
    GuardedTensor dtable(DType::kFloat32, {v, h});
    embedding_backward(
        {.num_threads = threads},
        {.index = {.ids = ids.view()}, .dy = dy.view(), .dtable = dtable.view(), .workspace = workspace.view()});
    results[threads - 1] = dtable.values();
  }
  EXPECT_EQ(results[0], results[1]);
}

}  // namespace
}  // namespace megatron::kernels
