// Matmuls on CUDA against the CPU.
#include <limits>

#include "megatron/kernels/cuda/matmul/matmul.h"
#include "tests/kernels/cuda/twin.h"

namespace megatron::kernels {
namespace {
using testing::kCudaTypes;
using testing::kPlacements;
using testing::Placement;
using testing::random_values;
using testing::Twin;
using testing::TwinValues;
using testing::within;

struct MatmulSizes {
  int64_t m, n, k;
};

/// op(a) op(b) + bias + c in double.
std::vector<double> product(Twin& a, Twin& b, MatmulSizes z, bool transpose_a, bool transpose_b,
                            const std::vector<double>& c, const std::vector<double>& bias) {
  const std::vector<double> x = a.from_gpu().values(), y = b.from_gpu().values();
  std::vector<double> sum = c;
  for (int64_t i = 0; i < z.m; ++i)
    for (int64_t l = 0; l < z.k; ++l)
      for (int64_t j = 0; j < z.n; ++j)
        sum[static_cast<size_t>(i * z.n + j)] += x[static_cast<size_t>(transpose_a ? l * z.m + i : i * z.k + l)] *
                                                 y[static_cast<size_t>(transpose_b ? j * z.k + l : l * z.n + j)];
  for (size_t e = 0; e < sum.size(); ++e) sum[e] += bias[e % static_cast<size_t>(z.n)];
  return sum;
}

class CudaMatmul : public testing::CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (!IsSkipped()) workspace_ = Twin(DType::kUInt8, {(int64_t{1} << 25) + (1 << 16)});
  }
  /// On the device, to the bit in two runs, against the CPU and against the formula. Both libraries may round the
  /// product to the dtype of c before they add bias and c: cuBLASLt 13.1 does so for c in half precision, where sums
  /// that all but vanish are off by up to 22 times the bound of one rounding. With c in fp32 it does not.
  void expect_agreement(DType dtype, DType c_dtype, MatmulSizes z, Placement p, bool transpose_a, bool transpose_b) {
    const Shape a_shape = transpose_a ? Shape{z.k, z.m} : Shape{z.m, z.k};
    const Shape b_shape = transpose_b ? Shape{z.n, z.k} : Shape{z.k, z.n};
    Twin a(dtype, a_shape, random_values(z.m * z.k, 1), p), b(dtype, b_shape, random_values(z.k * z.n, 2), p);
    Twin c(c_dtype, {z.m, z.n}, random_values(z.m * z.n, 3), p), bias(c_dtype, {z.n}, random_values(z.n, 4));
    const double size = 4 * std::sqrt(static_cast<double>(z.k + 1));
    for (bool with_bias : {false, true})
      for (bool accumulate : {false, true}) {
        SCOPED_TRACE(fmt::format("{} to {}, {} x {} x {}, gap {}, transposed {} {}, bias {}, accumulate {}", dtype,
                                 c_dtype, z.m, z.n, z.k, p.gap, transpose_a, transpose_b, with_bias, accumulate));
        c.reset();
        const std::vector<double> zero(static_cast<size_t>(z.m * z.n), 0);
        const std::vector<double> expected =
            product(a, b, z, transpose_a, transpose_b, accumulate ? c.from_gpu().values() : zero,
                    with_bias ? bias.from_gpu().values() : zero);
        testing::Result result = within(c, z.k, size);
        const bool rounds_twice = c_dtype != DType::kFloat32 && (accumulate || with_bias);
        const double rounding = rounds_twice ? epsilon(c_dtype) * size : 0;
        result.absolute += rounding;
        compare({result}, [&](const auto& stream, auto on) {
          matmul(stream, {.a = on(a),
                          .b = on(b),
                          .c = on(c),
                          .transpose_a = transpose_a,
                          .transpose_b = transpose_b,
                          .bias = with_bias ? on(bias) : View{},
                          .accumulate = accumulate,
                          .workspace = on(workspace_)});
        });
        EXPECT_LE(
            testing::largest_error(c.from_gpu(), expected,
                                   testing::tolerance(DType::kFloat32, z.k + 2, size) + rounding, epsilon(c_dtype)),
            1);
      }
  }
  Twin workspace_;
};

TEST_F(CudaMatmul, AgreesWithTheCpuInAllLayouts) {
  for (DType dtype : kCudaTypes)
    for (Placement p : kPlacements)
      for (MatmulSizes z :
           {MatmulSizes{1, 1, 1}, MatmulSizes{17, 9, 33}, MatmulSizes{64, 136, 72}, MatmulSizes{5, 24, 0}})
        for (bool transpose_a : {false, true})
          for (bool transpose_b : {false, true}) {
            expect_agreement(dtype, dtype, z, p, transpose_a, transpose_b);
            if (dtype != DType::kFloat32) expect_agreement(dtype, DType::kFloat32, z, p, transpose_a, transpose_b);
          }
}

TEST_F(CudaMatmul, BoundedRowsOfAAndCAreNotWrittenPastTheCount) {
  for (DType dtype : kCudaTypes)
    for (int32_t rows : {0, 11, 40}) {
      TwinValues<int32_t> count({rows});
      Twin a(dtype, {40, 24}, random_values(40 * 24, 1), {8, 0}), b(dtype, {16, 24}, random_values(16 * 24, 2));
      Twin c(dtype, {40, 16}, random_values(40 * 16, 3), {8, 0}), bias(dtype, {16}, random_values(16, 4));
      for (bool accumulate : {false, true}) {
        testing::Result result = within(c, 24, 20);
        result.absolute += epsilon(dtype) * 20;
        compare({result}, [&](const auto& stream, auto on) {
          View bounded_a = on(a), bounded_c = on(c);
          bounded_a.count = bounded_c.count = on(count);
          bounded_a.is_bounded = bounded_c.is_bounded = true;
          matmul(stream, {.a = bounded_a,
                          .b = on(b),
                          .c = bounded_c,
                          .transpose_b = true,
                          .bias = on(bias),
                          .accumulate = accumulate,
                          .workspace = on(workspace_)});
        });
      }
    }
}

TEST_F(CudaMatmul, RowsPastTheCountAddNothingToAWeightGradient) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (DType dtype : kCudaTypes)
    for (int32_t rows : {0, 11, 40}) {
      TwinValues<int32_t> count({rows});
      std::vector<double> x = random_values(40 * 24, 1), y = random_values(40 * 16, 2);
      for (size_t i = static_cast<size_t>(rows) * 24; i < x.size(); ++i) x[i] = nan;
      for (size_t i = static_cast<size_t>(rows) * 16; i < y.size(); ++i) y[i] = nan;
      Twin a(dtype, {40, 16}, y), b(dtype, {40, 24}, x), c(DType::kFloat32, {16, 24}, random_values(16 * 24, 3));
      for (bool accumulate : {false, true})
        compare({within(c, 40, 20)}, [&](const auto& stream, auto on) {
          View bounded_a = on(a), bounded_b = on(b);
          bounded_a.count = bounded_b.count = on(count);
          bounded_a.is_bounded = bounded_b.is_bounded = true;
          matmul(stream, {.a = bounded_a,
                          .b = bounded_b,
                          .c = on(c),
                          .transpose_a = true,
                          .accumulate = accumulate,
                          .workspace = on(workspace_)});
        });
    }
}

TEST_F(CudaMatmul, DoublePrecisionIsRejected) {
  Twin a(DType::kFloat64, {8, 8}), c(DType::kFloat64, {8, 8});
  EXPECT_THROW(matmul(stream_, {.a = a.gpu(), .b = a.gpu(), .c = c.gpu()}), DtypeError);
}

/// Rounding a matmul's two operands to 11 bits is an error of at most 2^-10 of each term, where one of fp32 is 2^-24.
TEST_F(CudaMatmul, Tf32RoundsOnlyTheOperandsOfFp32Matmuls) {
  const MatmulSizes z{96, 136, 72};
  const auto error_of = [&](DType dtype) {
    Twin a(dtype, {z.m, z.k}, random_values(z.m * z.k, 1)), b(dtype, {z.n, z.k}, random_values(z.k * z.n, 2));
    Twin c(DType::kFloat32, {z.m, z.n}, std::vector<double>(static_cast<size_t>(z.m * z.n), 0));
    const std::vector<double> zero(static_cast<size_t>(z.m * z.n), 0);
    const std::vector<double> expected = product(a, b, z, false, true, zero, zero);
    matmul(stream_, {.a = a.gpu(), .b = b.gpu(), .c = c.gpu(), .transpose_b = true, .workspace = workspace_.gpu()});
    const std::vector<double> values = c.from_gpu().values();
    double largest = 0;
    for (size_t e = 0; e < values.size(); ++e) largest = std::max(largest, std::abs(values[e] - expected[e]));
    return largest;
  };
  const double size = 4 * std::sqrt(static_cast<double>(z.k));  // of a sum of products of standard normal values
  const double of_fp32 = testing::tolerance(DType::kFloat32, z.k + 2, size);
  const double before = error_of(DType::kFloat32), of_half = error_of(DType::kBFloat16);
  EXPECT_LE(before, of_fp32);
  use_tf32(stream_);
  const double with_tf32 = error_of(DType::kFloat32);
  EXPECT_LE(with_tf32, size / 1024);
  EXPECT_GT(with_tf32, of_fp32);
  EXPECT_EQ(error_of(DType::kBFloat16), of_half);
}

TEST_F(CudaMatmul, LargeProductsAgree) {
  for (DType dtype : kCudaTypes) expect_agreement(dtype, dtype, {256, 136, 512}, {}, false, true);
}

}  // namespace
}  // namespace megatron::kernels
