#include "megatron/kernels/merge_attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

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

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int64_t s = 3, b = 2, n = 4, dv = 5, kRows = s * b * n;

int64_t lse_index(int64_t row) { return (row % n * b + row / n % b) * s + row / (n * b); }

/// Merges parts one after the other, from nothing.
struct Merged {
  explicit Merged(DType sums)
      : o(sums, {s, b, n, dv}, Values(kRows * dv, 0)), lse(sums, {n, b, s}, Values(kRows, -kInfinity)) {}
  void add(GuardedTensor& part_o, GuardedTensor& part_lse) {
    merge_attention(kTwoThreads,
                    {.o = part_o.view(), .lse = part_lse.view(), .sum_o = o.view(), .sum_lse = lse.view()});
  }
  GuardedTensor o, lse;
};

TEST(MergeAttention, WeighsPartsByTheirDenominators) {
  for (DType dtype : kFloatingTypes) {
    const DType sums = dtype == DType::kFloat64 ? dtype : DType::kFloat32;
    std::vector<GuardedTensor> o, lse;
    for (uint64_t part = 0; part < 3; ++part) {
      o.emplace_back(dtype, Shape{s, b, n, dv}, random_values(kRows * dv, part), 2);
      Values logs = random_values(kRows, 10 + part, 3);
      if (part == 1) logs[lse_index(7)] = -kInfinity;  // a query that sees nothing of it
      lse.emplace_back(sums, Shape{n, b, s}, logs);
    }
    Merged merged(sums);
    for (size_t part = 0; part < 3; ++part) merged.add(o[part], lse[part]);
    for (int64_t row = 0; row < kRows; ++row) {
      double denominator = 0;
      for (GuardedTensor& part : lse) denominator += std::exp(part[lse_index(row)]);
      EXPECT_NEAR(merged.lse[lse_index(row)], std::log(denominator), tolerance(sums, 3, 10));
      for (int64_t c = 0; c < dv; ++c) {
        double expected = 0;
        for (size_t part = 0; part < 3; ++part)
          expected += std::exp(lse[part][lse_index(row)]) / denominator * o[part][row * dv + c];
        EXPECT_NEAR(merged.o[row * dv + c], expected, tolerance(sums, 30, 4)) << row;
      }
    }
    EXPECT_TRUE(merged.o.guards_are_intact() && merged.lse.guards_are_intact());
  }
}

TEST(MergeAttention, LeavesQueriesWithoutAVisibleKeyAtZero) {
  GuardedTensor o(DType::kFloat32, {s, b, n, dv}, Values(kRows * dv, 0)),
      lse(DType::kFloat32, {n, b, s}, Values(kRows, -kInfinity));
  Merged merged(DType::kFloat32);
  merged.add(o, lse);
  merged.add(o, lse);
  EXPECT_EQ(merged.o.values(), Values(kRows * dv, 0));
  EXPECT_EQ(merged.lse.values(), Values(kRows, -kInfinity));
}

TEST(MergeAttention, SurvivesDenominatorsBeyondTheRangeOfTheirDtype) {
  GuardedTensor o(DType::kFloat32, {s, b, n, dv}, Values(kRows * dv, 2)),
      small(DType::kFloat32, {n, b, s}, Values(kRows, -900)), large(DType::kFloat32, {n, b, s}, Values(kRows, 900));
  Merged merged(DType::kFloat32);
  merged.add(o, small);
  EXPECT_EQ(merged.o[0], 2);
  merged.add(o, large);
  EXPECT_EQ(merged.o[0], 2);
  EXPECT_EQ(merged.lse[0], 900);
}

TEST(MergeAttention, RejectsShapesThatDoNotFit) {
  GuardedTensor o(DType::kFloat32, {s, b, n, dv}, Values(kRows * dv, 0)),
      lse(DType::kFloat32, {n, b, s + 1}, Values(n * b * (s + 1), 0));
  Merged merged(DType::kFloat32);
  EXPECT_THROW(merged.add(o, lse), ShapeError);
}

}  // namespace
}  // namespace megatron::kernels
