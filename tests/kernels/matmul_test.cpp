#include "megatron/kernels/matmul.h"

#include <gtest/gtest.h>

#include <cstring>
#include <thread>

#include "megatron/kernels/cpu/matmul_tiled.h"
#include "tests/testing/guarded_tensor.h"
#include "tests/testing/tolerance.h"

namespace megatron::kernels {
namespace {

using testing::compute_dtype;
using testing::GuardedTensor;
using testing::kFloatingTypes;
using testing::largest_error;
using testing::random_values;
using testing::tolerance;

/// A stream with its own library handles, as a device has.
struct TestStream {
  explicit TestStream(int num_threads = 1) : stream{num_threads, &libraries} {}
  std::unique_ptr<LibraryHandles> libraries;
  CpuStream stream;
};

struct Product {
  DType dtype = DType::kFloat32;
  int64_t m = 1, n = 1, k = 1;
  bool transpose_a = false, transpose_b = false, has_bias = false, accumulate = false, wide_output = false;
  int64_t gap = 0;
};

/// Operands, and the result in double from the rounded operands.
struct ProductCase {
  explicit ProductCase(const Product& p)
      : product(p),
        a(p.dtype, p.transpose_a ? Shape{p.k, p.m} : Shape{p.m, p.k}, random_values(p.m * p.k, 1), p.gap),
        b(p.dtype, p.transpose_b ? Shape{p.n, p.k} : Shape{p.k, p.n}, random_values(p.n * p.k, 2), p.gap),
        bias(p.dtype, {p.n}, random_values(p.n, 3)),
        c(p.wide_output ? compute_dtype(p.dtype) : p.dtype, {p.m, p.n}, random_values(p.m * p.n, 4), p.gap),
        old(c.values()) {}

  std::vector<double> expected(int64_t depth) const {
    const std::vector<double> x = a.values(), y = b.values();
    const int64_t x_row = product.transpose_a ? 1 : product.k, x_depth = product.transpose_a ? product.m : 1;
    const int64_t y_column = product.transpose_b ? product.k : 1, y_depth = product.transpose_b ? 1 : product.n;
    std::vector<double> result;
    for (int64_t i = 0; i < product.m; ++i)
      for (int64_t j = 0; j < product.n; ++j) {
        double sum = product.has_bias ? bias[j] : 0;
        if (product.accumulate) sum += old[static_cast<size_t>(i * product.n + j)];
        for (int64_t l = 0; l < depth; ++l)
          sum += x[static_cast<size_t>(i * x_row + l * x_depth)] * y[static_cast<size_t>(j * y_column + l * y_depth)];
        result.push_back(sum);
      }
    return result;
  }
  MatmulArgs args() {
    return {.a = a.view(),
            .b = b.view(),
            .c = c.view(),
            .transpose_a = product.transpose_a,
            .transpose_b = product.transpose_b,
            .bias = product.has_bias ? bias.view().read() : ConstView{},
            .accumulate = product.accumulate,
            .workspace = {}};
  }
  void run(const CpuStream& stream, MatmulArgs args) {
    workspace = testing::workspace_of(matmul_workspace_bytes(stream, args));
    args.workspace = workspace.view();
    matmul(stream, args);
  }
  /// At most 1 if the result is within rounding. What is rounded are partial sums, of size sqrt(k).
  double error() const { return error(expected(product.k)); }
  double error(const std::vector<double>& values) const {
    const double sum = std::sqrt(static_cast<double>(product.k + 2));
    return largest_error(c, values, tolerance(compute_dtype(product.dtype), product.k + 2, sum), epsilon(c.dtype()));
  }

  Product product;
  GuardedTensor a, b, bias, c, workspace;
  std::vector<double> old;
};

std::string describe(const Product& p) {
  return fmt::format("{} m={} n={} k={} transpose {}{} bias {} accumulate {} wide {} gap {}", p.dtype, p.m, p.n, p.k,
                     p.transpose_a, p.transpose_b, p.has_bias, p.accumulate, p.wide_output, p.gap);
}

/// All dtypes with every `step`-th combination of flags at one size; 5 steps through all values of each flag.
template <class F>
void for_each_product(int64_t m, int64_t n, int64_t k, int step, F&& f) {
  for (DType dtype : kFloatingTypes)
    for (int flags = 0; flags < 64; flags += step)
      f(Product{dtype, m, n, k, (flags & 1) != 0, (flags & 2) != 0, (flags & 4) != 0, (flags & 8) != 0,
                (flags & 16) != 0, (flags & 32) ? int64_t{3} : int64_t{0}});
}

TEST(Matmul, EqualsTheSumOfProductsForAllDtypesFlagsAndOddSizes) {
  TestStream cpu;
  for (const auto& [m, n, k] : {std::array<int64_t, 3>{1, 1, 1}, {7, 5, 3}, {1, 33, 65}, {31, 1, 20}, {33, 65, 31}})
    for_each_product(m, n, k, m == 7 ? 1 : 5, [&](const Product& product) {
      ProductCase test(product);
      test.run(cpu.stream, test.args());
      EXPECT_LE(test.error(), 1) << describe(product);
      EXPECT_TRUE(test.c.guards_are_intact() && test.workspace.guards_are_intact()) << describe(product);
    });
}

TEST(Matmul, HandlesSizesBeyondOneBlockAndAVocabularyThatNoVectorDivides) {
  TestStream cpu;
  for (DType dtype : kFloatingTypes)
    for (const auto& [m, n, k] : {std::array<int64_t, 3>{130, 257, 600}, {3, 50257, 20}, {257, 20, 3}})
      for (bool transposed : {false, true}) {
        const Product product{
            .dtype = dtype, .m = m, .n = n, .k = k, .transpose_a = transposed, .transpose_b = !transposed};
        ProductCase test(product);
        test.run(cpu.stream, test.args());
        EXPECT_LE(test.error(), 1) << describe(product);
        EXPECT_TRUE(test.c.guards_are_intact());
      }
}

TEST(Matmul, OwnTilesAgreeWithTheFormulaOnEveryInstructionSet) {
  TestStream cpu;
  for (int set = 0; set <= static_cast<int>(widest_instruction_set()); ++set)
    for (DType dtype : kFloatingTypes)
      for (int flags = 0; flags < 8; ++flags) {
        const Product product{.dtype = dtype,
                              .m = 101,
                              .n = 70,
                              .k = 270,
                              .transpose_a = (flags & 1) != 0,
                              .transpose_b = (flags & 2) != 0,
                              .has_bias = (flags & 4) != 0,
                              .accumulate = (flags & 4) != 0};
        ProductCase test(product);
        MatmulArgs args = test.args();
        test.workspace = testing::workspace_of(tiled_matmul_workspace_bytes(cpu.stream, args));
        args.workspace = test.workspace.view();
        tiled_matmul(static_cast<InstructionSet>(set), cpu.stream, args);
        EXPECT_LE(test.error(), 1) << describe(product) << " instruction set " << set;
        EXPECT_TRUE(test.c.guards_are_intact()) << describe(product);
      }
}

/// Rows [first, first + count) of a row-major view.
template <class AnyView>
AnyView rows_of(AnyView x, int64_t first, int64_t count) {
  x.data = static_cast<std::byte*>(const_cast<void*>(static_cast<const void*>(x.data))) +
           first * x.strides[0] * size_of(x.dtype);
  x.shape[0] = count;
  return x;
}

TEST(Matmul, TilesGiveARowTheSameBitsWhateverRowsAreBesideIt) {
  TestStream cpu;
  for (int set = 0; set <= static_cast<int>(widest_instruction_set()); ++set)
    for (const DType dtype : kFloatingTypes)
      for (const bool transpose_b : {false, true}) {
        const auto multiply = [&](const MatmulArgs& args) {
          tiled_matmul(static_cast<InstructionSet>(set), cpu.stream, args);
        };
        const Product product{.dtype = dtype, .m = 101, .n = 70, .k = 600, .transpose_b = transpose_b};
        ProductCase whole(product), in_parts(product);
        whole.workspace = testing::workspace_of(tiled_matmul_workspace_bytes(cpu.stream, whole.args()));
        MatmulArgs args = whole.args();
        args.workspace = whole.workspace.view();
        multiply(args);
        args.c = in_parts.c.view();
        const ConstView a = args.a;
        const View c = args.c;
        for (const auto& [first, count] : {std::pair{0, 37}, {37, 1}, {38, 63}}) {
          args.a = rows_of(a, first, count);
          args.c = rows_of(c, first, count);
          multiply(args);
        }
        EXPECT_EQ(in_parts.c.values(), whole.c.values()) << describe(product) << " instruction set " << set;
      }
}

TEST(Matmul, BoundedRowsLeaveTheRestOfTheOutputUntouched) {
  TestStream cpu;
  const int64_t capacity = 100;
  for (DType dtype : kFloatingTypes)
    for (int32_t count : {0, 1, 7, 16, 93, 100, 1000}) {
      const Product product{.dtype = dtype, .m = capacity, .n = 20, .k = 33, .transpose_b = true, .has_bias = true};
      ProductCase test(product);
      MatmulArgs args = test.args();
      args.a = test.a.bounded(&count);
      args.c = test.c.bounded(&count);
      test.run(cpu.stream, args);
      std::vector<double> expected = test.expected(product.k);
      const int64_t rows = std::min<int64_t>(count, capacity);
      std::copy(test.old.begin() + rows * product.n, test.old.end(), expected.begin() + rows * product.n);
      EXPECT_LE(test.error(expected), 1) << name_of(dtype) << " count " << count;
      EXPECT_TRUE(test.workspace.guards_are_intact());
    }
}

TEST(Matmul, BoundedDepthSumsOnlyTheRowsThatAreThere) {
  TestStream cpu;
  for (DType dtype : kFloatingTypes)
    for (bool accumulate : {false, true})
      for (int32_t count : {0, 1, 7, 16, 93, 100}) {
        Product product{.dtype = dtype, .m = 33, .n = 20, .k = 100, .transpose_a = true, .accumulate = accumulate};
        product.wide_output = true;
        ProductCase test(product);
        for (int64_t i = count * product.m; i < product.k * product.m; ++i) test.a.store(i, HUGE_VAL);
        MatmulArgs args = test.args();
        args.a = test.a.bounded(&count);
        args.b = test.b.bounded(&count);
        test.run(cpu.stream, args);
        EXPECT_LE(test.error(test.expected(count)), 1) << describe(product) << " count " << count;
        EXPECT_TRUE(test.c.guards_are_intact() && test.workspace.guards_are_intact());
      }
}

TEST(Matmul, WorkspaceDependsOnShapesOnly) {
  TestStream cpu;
  ProductCase test({.dtype = DType::kBFloat16, .m = 64, .n = 48, .k = 32, .transpose_b = true, .has_bias = true});
  MatmulArgs args = test.args(), without_data = args;
  without_data.a.data = without_data.b.data = without_data.bias.data = nullptr;
  without_data.c.data = nullptr;
  EXPECT_EQ(matmul_workspace_bytes(cpu.stream, without_data), matmul_workspace_bytes(cpu.stream, args));
}

TEST(Matmul, RejectsOperandsThatDoNotFitTogether) {
  TestStream cpu;
  ProductCase test({.dtype = DType::kFloat64, .m = 4, .n = 5, .k = 6, .has_bias = true});
  MatmulArgs transposed = test.args(), other_dtype = test.args();
  transposed.transpose_b = true;
  other_dtype.bias.dtype = DType::kFloat32;
  EXPECT_THROW(matmul(cpu.stream, transposed), ShapeError);
  EXPECT_THROW(matmul(cpu.stream, other_dtype), DtypeError);
}

TEST(Matmul, RepeatsBitwiseAndAgreesBetweenOneAndTwoThreads) {
  for (DType dtype : kFloatingTypes) {
    const Product product{.dtype = dtype, .m = 200, .n = 130, .k = 300, .transpose_a = true, .accumulate = true};
    TestStream one(1), two(2);
    ProductCase first(product), again(product), on_two(product), on_two_again(product);
    first.run(one.stream, first.args());
    again.run(one.stream, again.args());
    on_two.run(two.stream, on_two.args());
    on_two_again.run(two.stream, on_two_again.args());
    EXPECT_EQ(first.c.values(), again.c.values()) << name_of(dtype);
    EXPECT_EQ(on_two.c.values(), on_two_again.c.values()) << name_of(dtype);
    EXPECT_LE(on_two.error(), 1) << name_of(dtype);
  }
}

TEST(Matmul, RankThreadsWithOwnHandlesDoNotDisturbEachOther) {
  constexpr int kRanks = 4;
  std::vector<double> errors(kRanks, HUGE_VAL);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kRanks; ++rank)
    ranks.emplace_back([&, rank] {
      TestStream cpu;
      ProductCase test({.dtype = rank % 2 ? DType::kFloat32 : DType::kBFloat16, .m = 64, .n = 96, .k = 80});
      double error = 0;
      for (int repeat = 0; repeat < 50; ++repeat) {
        test.run(cpu.stream, test.args());
        error = std::max(error, test.error());
      }
      errors[static_cast<size_t>(rank)] = error;
    });
  for (std::thread& rank : ranks) rank.join();
  for (double error : errors) EXPECT_LE(error, 1);
}

}  // namespace
}  // namespace megatron::kernels
