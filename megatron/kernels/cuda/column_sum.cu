#include "megatron/kernels/column_sum.h"

#include "megatron/kernels/cuda/launch.cuh"

namespace megatron::kernels {
namespace {

/// Columns and rows of threads of a block that adds parts.
constexpr int kStoreColumns = 32, kStoreRows = 16;

/// Row y of threads adds the parts y, y + 16, ... of its column; the rows are added in order.
__global__ void __launch_bounds__(kStoreColumns* kStoreRows)
    store_sums_kernel(const float* partial, int64_t num_parts, int64_t columns, Operand first, Operand second,
                      bool accumulate) {
  __shared__ float shared[kStoreRows][kStoreColumns];
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kStoreColumns + threadIdx.x;
  const Operand& out = blockIdx.y == 0 ? first : second;
  float sum = 0;
  if (column < columns && out) {
#pragma unroll 4
    for (int64_t part = threadIdx.y; part < num_parts; part += kStoreRows)
      sum += partial[(part * gridDim.y + blockIdx.y) * columns + column];
  }
  shared[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= columns || !out) return;
  for (int row = 1; row < kStoreRows; ++row) sum += shared[row][threadIdx.x];
  if (accumulate) sum += load_scalar(out.data, out.dtype, column * out.step);
  store_scalar(out.data, out.dtype, column * out.step, sum);
}

template <class X>
struct AddRow {
  static constexpr int kRowsAhead = kIsWhole<X> ? 8 : 4;
  X x;
  __device__ RawPack fetch(int64_t row, int64_t begin, int n) const { return load_raw(x, row, begin, n); }
  __device__ void use(const RawPack& raw, int64_t, int64_t, int, float (*sums)[kPack]) const {
    const Pack values = convert(raw);
#pragma unroll
    for (int e = 0; e < kPack; ++e) sums[0][e] += values.v[e];
  }
};

}  // namespace

void store_column_sums(const CudaStream& stream, const float* partial, int64_t num_parts, int64_t columns,
                       int num_outputs, const View* outs, bool accumulate) {
  const dim3 grid(static_cast<unsigned>((columns + kStoreColumns - 1) / kStoreColumns),
                  static_cast<unsigned>(num_outputs));
  store_sums_kernel<<<grid, dim3(kStoreColumns, kStoreRows), 0, stream.stream>>>(
      partial, num_parts, columns, Operand(outs[0]), num_outputs > 1 ? Operand(outs[1]) : Operand(), accumulate);
  check_launch("column_sum");
}

void column_sum(const CudaStream& stream, const ColumnSumArgs& args) {
  const Operand x(args.x);
  with_operand_type(args.x.shape[-1], {x}, [&](auto type) {
    using X = decltype(type);
    sum_columns<1>(stream, "column_sum", Extent(args.x), args.workspace, &args.out, args.accumulate, AddRow<X>{X(x)});
  });
}

}  // namespace megatron::kernels
