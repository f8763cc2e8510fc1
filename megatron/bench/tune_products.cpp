#include "megatron/bench/tune_products.h"

#include "megatron/bench/product_operands.h"

namespace megatron {

std::vector<kernels::MatmulKey> products_of(BenchDevice& bench, const std::vector<LinearShape>& shapes, DType dtype,
                                            DType gradient_dtype) {
  for (const LinearShape& shape : shapes)
    for (const KernelCase& kernel : linear_cases(shape, dtype, gradient_dtype)) kernel.prepare(bench.context())();
  if constexpr (kHasCuda) return kernels::used_matmuls(bench.device().cuda_stream()).products;
  return {};
}

kernels::MatmulChoices tune_products(BenchDevice& bench, const std::string& gpu,
                                     const std::vector<kernels::MatmulKey>& products,
                                     const kernels::MatmulTuningOptions& options, Progress& progress) {
  kernels::MatmulChoices tuned{.gpu = gpu};
  if constexpr (kHasCuda) tuned.library_version = kernels::cublaslt_version();
  const std::vector<kernels::MatmulKey> distinct = kernels::with_least_alignments(products);
  progress.begin({.title = "measuring algorithms", .total = std::ssize(distinct)});
  for (const kernels::MatmulKey& product : distinct) {
    progress.update(std::ssize(tuned.choices), text_of(product));
    const ProductOperands operands = product_operands(bench.context(), product);
    if constexpr (kHasCuda)
      tuned.choices.insert(kernels::tune_matmul(bench.device().cuda_stream(), operands.args, options));
  }
  progress.update(std::ssize(distinct), "");
  progress.end();
  return tuned;
}

std::string text_of(const kernels::MatmulKey& product) {
  std::string text = fmt::format("{} x {} x {}, {}", product.m, product.n, product.k, name_of(product.dtype));
  if (product.c_dtype != product.dtype) text += fmt::format(" to {}", name_of(product.c_dtype));
  if (product.transpose_a) text += ", a transposed";
  if (product.transpose_b) text += ", b transposed";
  if (product.has_bias) text += ", bias";
  if (product.accumulate) text += ", accumulating";
  return text;
}

}  // namespace megatron
