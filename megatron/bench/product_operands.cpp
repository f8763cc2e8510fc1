#include "megatron/bench/product_operands.h"

#include "megatron/bench/bench_device.h"
#include "megatron/kernels/cuda/matmul/matmul.h"

namespace megatron {
namespace {

struct Matrix {
  int64_t rows = 0, columns = 0, stride = 0;
  DType dtype = DType::kFloat32;
  uint32_t alignment = 256;  // in bytes, exactly
};

/// Bytes from `data` to the first address with exactly this alignment (256: or better).
int64_t bytes_to(const void* data, int64_t alignment) {
  constexpr int64_t kBest = 256;
  const auto address = static_cast<int64_t>(reinterpret_cast<uintptr_t>(data) % kBest);
  return (alignment % kBest + kBest - address) % kBest;
}

View place(const Context& ctx, const Matrix& z, std::vector<Tensor>& tensors) {
  constexpr double kStd = 0.02;
  constexpr int64_t kMostSkipped = 256;
  const int64_t used = (z.rows - 1) * z.stride + z.columns;
  Tensor& flat = tensors.emplace_back(random_tensor(ctx, {kMostSkipped + used}, z.dtype, kStd));
  const int64_t skipped = bytes_to(flat.view().data, z.alignment) / size_of(z.dtype);
  View view = flat.slice(0, skipped, used).view();
  view.shape = Shape{z.rows, z.columns};
  view.strides = Shape{z.stride, 1};
  return view;
}

}  // namespace

ProductOperands product_operands(const Context& ctx, const kernels::MatmulKey& key) {
  ProductOperands operands;
  std::vector<Tensor>& tensors = operands.tensors;
  const auto input = [&](bool transposed, int64_t rows, int64_t columns, int64_t stride, uint32_t alignment) {
    if (transposed) std::swap(rows, columns);
    return place(ctx, {rows, columns, stride, key.dtype, alignment}, tensors);
  };
  kernels::MatmulArgs& args = operands.args;
  args.transpose_a = key.transpose_a, args.transpose_b = key.transpose_b, args.accumulate = key.accumulate;
  args.a = input(key.transpose_a, key.m, key.k, key.a_stride, key.a_alignment);
  args.b = input(key.transpose_b, key.k, key.n, key.b_stride, key.b_alignment);
  args.c = place(ctx, {key.m, key.n, key.c_stride, key.c_dtype, key.c_alignment}, tensors);
  if (key.has_bias) {
    View bias = place(ctx, {1, key.n, key.n, key.c_dtype, key.bias_alignment}, tensors);
    bias.shape = Shape{key.n}, bias.strides = Shape{1};
    args.bias = bias;
  }
  require<InternalError>(kernels::matmul_key(args) == key,
                         "[bench] the operands made for a matmul of m {}, n {}, k {} do not match its key.", key.m,
                         key.n, key.k);
  const int64_t bytes =
      with_stream(ctx.device, [&](auto& stream) { return kernels::matmul_workspace_bytes(stream, args); });
  Tensor workspace = ctx.workspace("workspace", bytes);
  if (workspace.defined()) args.workspace = workspace.view(), tensors.push_back(workspace);
  return operands;
}

}  // namespace megatron
