// Matrix products on CUDA against the CPU.
#include "megatron/kernels/cuda/matmul.h"
#include "tests/kernels/cuda/twin.h"

namespace megatron::kernels {
namespace {
using testing::kCudaTypes;
using testing::kPlacements;
using testing::Placement;
using testing::random_values;
using testing::Twin;
using testing::within;

struct Sizes {
  int64_t m, n, k;
};

/// op(a) op(b) + bias + c in double.
std::vector<double> product(Twin& a, Twin& b, Sizes z, bool transpose_a, bool transpose_b, const std::vector<double>& c,
                            const std::vector<double>& bias) {
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
    if (!IsSkipped()) workspace_ = Twin(DType::kUInt8, {int64_t{1} << 25});
  }
  /// On the device, to the bit in two runs, against the CPU and against the formula. Both libraries may round the
  /// product to the dtype of c before they add bias and c.
  void expect_agreement(DType dtype, DType c_dtype, Sizes z, Placement p, bool transpose_a, bool transpose_b) {
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
        const double rounding = accumulate || with_bias ? epsilon(c_dtype) * size : 0;
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
      for (Sizes z : {Sizes{1, 1, 1}, Sizes{17, 9, 33}, Sizes{64, 136, 72}, Sizes{5, 24, 0}})
        for (bool transpose_a : {false, true})
          for (bool transpose_b : {false, true}) {
            expect_agreement(dtype, dtype, z, p, transpose_a, transpose_b);
            if (dtype != DType::kFloat32) expect_agreement(dtype, DType::kFloat32, z, p, transpose_a, transpose_b);
          }
}

TEST_F(CudaMatmul, LargeProductsAgree) {
  for (DType dtype : kCudaTypes) expect_agreement(dtype, dtype, {256, 136, 512}, {}, false, true);
}

}  // namespace
}  // namespace megatron::kernels
