#include "megatron/bench/product_operands.h"

#include <gtest/gtest.h>

#include "megatron/bench/tune_products.h"

namespace megatron {
namespace {

using kernels::MatmulKey;

TEST(ProductOperands, HaveTheShapesStridesAndAlignmentsOfTheKey) {
  BenchDevice bench(DeviceKind::kCpu, 1);
  const MatmulKey plain{.m = 5, .n = 7, .k = 3, .a_stride = 3, .b_stride = 7, .c_stride = 7};
  MatmulKey strided{.m = 13, .n = 24, .k = 40, .a_stride = 44, .b_stride = 40, .c_stride = 31};
  strided.transpose_b = strided.has_bias = true;
  strided.a_alignment = 8, strided.b_alignment = 2, strided.c_alignment = 128, strided.bias_alignment = 16;
  MatmulKey gradient{.m = 24, .n = 40, .k = 1, .a_stride = 24, .b_stride = 48, .c_stride = 40};
  gradient.c_dtype = DType::kFloat32, gradient.transpose_a = gradient.accumulate = true;
  gradient.c_alignment = 4;
  for (const MatmulKey& key : {plain, strided, gradient}) {
    const ProductOperands operands = product_operands(bench.context(), key);
    EXPECT_EQ(kernels::matmul_key(operands.args), key);
    kernels::matmul(bench.device().cpu_stream(), operands.args);
  }
}

TEST(ProductOperands, AreNamedByTheirMatmul) {
  MatmulKey key{.m = 5, .n = 7, .k = 3};
  EXPECT_EQ(text_of(key), "5 x 7 x 3, bfloat16");
  key.c_dtype = DType::kFloat32, key.transpose_a = key.accumulate = true;
  EXPECT_EQ(text_of(key), "5 x 7 x 3, bfloat16 to float32, a transposed, accumulating");
}

}  // namespace
}  // namespace megatron
