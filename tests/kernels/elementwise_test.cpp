#include "megatron/kernels/elementwise.h"

#include <gmock/gmock.h>

#include "megatron/kernels/column_sum.h"
#include "tests/kernels/cpu_streams.h"
#include "tests/testing/guarded_tensor.h"
#include "tests/testing/tolerance.h"

namespace megatron::kernels {
namespace {
using ::testing::Each;
using ::testing::ElementsAre;
using testing::GuardedTensor;
using testing::kFloatingTypes;
using testing::random_values;

TEST(Elementwise, CopyConvertsBetweenAllFloatingTypesAndStrides) {
  const auto values = random_values(3 * 25 * 1030, 1);
  for (DType from : kFloatingTypes) {
    for (DType to : kFloatingTypes) {
      for (int64_t gap : {0, 3}) {
        GuardedTensor x(from, {3, 25, 1030}, values, gap), y(to, {3, 25, 1030});
        copy(kTwoThreads, {.x = x.view(), .y = y.view()});
        EXPECT_TRUE(y.guards_are_intact());
        GuardedTensor expected(to, {3, 25, 1030}, x.values());
        EXPECT_EQ(y.values(), expected.values()) << name_of(from) << " to " << name_of(to);
      }
    }
  }
}

TEST(Elementwise, CopyTransposes) {
  for (DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kInt64, DType::kUInt8}) {
    GuardedTensor x(dtype, {2, 3}, {1, 2, 3, 4, 5, 6}), y(dtype, {3, 2});
    View transposed = x.view();
    std::swap(transposed.shape[0], transposed.shape[1]);
    std::swap(transposed.strides[0], transposed.strides[1]);
    copy(kOneThread, {.x = transposed, .y = y.view()});
    EXPECT_THAT(y.values(), ElementsAre(1, 4, 2, 5, 3, 6));
    EXPECT_TRUE(y.guards_are_intact());
  }
  GuardedTensor x(DType::kFloat32, {2, 2}, {1, 2, 3, 4}), y(DType::kBFloat16, {2, 2});
  View transposed = y.view();
  std::swap(transposed.strides[0], transposed.strides[1]);
  copy(kOneThread, {.x = x.view(), .y = transposed});
  EXPECT_THAT(y.values(), ElementsAre(1, 3, 2, 4));
}

TEST(Elementwise, BoundedRowsBeyondTheCountAreLeft) {
  const int32_t count = 2;
  GuardedTensor x(DType::kFloat32, {3, 2}, {1, 2, 3, 4, 5, 6}), y(DType::kFloat32, {3, 2}, std::vector<double>(6, 9));
  copy(kOneThread, {.x = x.bounded(&count), .y = y.bounded(&count)});
  EXPECT_THAT(y.values(), ElementsAre(1, 2, 3, 4, 9, 9));
  fill(kOneThread, {.y = y.bounded(&count), .value = 7});
  EXPECT_THAT(y.values(), ElementsAre(7, 7, 7, 7, 9, 9));
}

TEST(Elementwise, FillSetsAllTypes) {
  for (DType dtype : {DType::kFloat64, DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kInt64, DType::kInt32,
                      DType::kUInt8}) {
    for (int64_t gap : {0, 1}) {
      GuardedTensor y(dtype, {3, 25000}, {}, gap);
      fill(kTwoThreads, {.y = y.view(), .value = 5});
      EXPECT_THAT(y.values(), Each(5.0));
      EXPECT_TRUE(y.guards_are_intact());
    }
  }
}

TEST(Elementwise, SumsAreRoundedOnce) {
  for (DType dtype : kFloatingTypes) {
    GuardedTensor a(dtype, {70, 1333}, random_values(93310, 2), 1), b(dtype, {70, 1333}, random_values(93310, 3));
    GuardedTensor y(dtype, {70, 1333});
    const bool is_exact = dtype == DType::kBFloat16 || dtype == DType::kFloat16;  // fp32 holds what is rounded
    const auto expect = [&](auto&& f) {
      std::vector<double> values;
      for (int64_t i = 0; i < 93310; ++i) values.push_back(f(a[i], b[i]));
      const GuardedTensor expected(dtype, {70, 1333}, values);
      EXPECT_LE(testing::largest_error(y, expected.values(), is_exact ? 0 : testing::tolerance(dtype), 0), 1);
      EXPECT_TRUE(y.guards_are_intact());
    };
    add(kTwoThreads, {.a = a.view(), .b = b.view(), .y = y.view()});
    expect([](double p, double q) { return p + q; });
    const double device_factor = 2;
    scale(kTwoThreads, {.x = a.view(), .y = y.view(), .factor = 0.25, .device_factor = &device_factor});
    expect([](double p, double) { return 0.5 * p; });
    copy(kOneThread, {.x = b.view(), .y = y.view()});
    accumulate(kTwoThreads, {.x = a.view(), .y = y.view(), .factor = -2});
    expect([](double p, double q) { return q - 2 * p; });
  }
}

TEST(Elementwise, AccumulatesLowPrecisionIntoFp32) {
  GuardedTensor main(DType::kFloat32, {3}, {1, 2, 3}), x(DType::kBFloat16, {3}, {0x1p-20, 0x1p-20, 4});
  accumulate(kOneThread, {.x = x.view(), .y = main.view()});
  EXPECT_THAT(main.values(), ElementsAre(1 + 0x1p-20, 2 + 0x1p-20, 7));
}

TEST(Elementwise, EmptyTensorsAreLeft) {
  GuardedTensor x(DType::kFloat32, {0, 4}), y(DType::kFloat32, {4, 0});
  fill(kTwoThreads, {.y = x.view(), .value = 1});
  scale(kTwoThreads, {.x = y.view(), .y = y.view(), .factor = 2});
  EXPECT_TRUE(x.guards_are_intact() && y.guards_are_intact());
}

TEST(Elementwise, Float64DoesNotMixSilently) {
  GuardedTensor a(DType::kFloat32, {2}, {1, 2}), b(DType::kFloat64, {2}, {1, 2});
  EXPECT_THROW(add(kOneThread, {.a = b.view(), .b = a.view(), .y = a.view()}), DtypeError);
}

TEST(ColumnSum, SumsRowsAndAccumulatesInAnotherType) {
  for (DType dtype : kFloatingTypes) {
    const int64_t rows = 300, f = 1031;
    const DType compute = testing::compute_dtype(dtype);
    GuardedTensor x(dtype, {3, 100, f}, random_values(rows * f, 4), 2);
    std::vector<double> expected(f, 0.0);
    for (int64_t i = 0; i < rows * f; ++i) expected[static_cast<size_t>(i % f)] += x[i];
    auto workspace = testing::workspace_of(column_sum_workspace_bytes(rows, f, dtype));
    for (double& sum : expected) sum *= 2;
    std::vector<std::vector<double>> results;
    for (const CpuStream& stream : {kOneThread, kTwoThreads}) {
      GuardedTensor out(compute, {f}, std::vector<double>(f, 10));
      column_sum(stream, {.x = x.view(), .out = out.view(), .workspace = workspace.view()});
      column_sum(stream, {.x = x.view(), .out = out.view(), .accumulate = true, .workspace = workspace.view()});
      // Partial sums of normal numbers grow as the square root of their number.
      EXPECT_LE(testing::largest_error(out, expected, testing::tolerance(compute, rows, std::sqrt(rows)), 0), 1);
      EXPECT_TRUE(out.guards_are_intact() && workspace.guards_are_intact());
      results.push_back(out.values());
    }
    EXPECT_EQ(results[0], results[1]);
  }
}

}  // namespace
}  // namespace megatron::kernels
