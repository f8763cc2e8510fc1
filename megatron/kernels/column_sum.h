// Sums over the rows of a matrix: the gradient of a bias.
// The overload for CUDA takes fp32, bf16 and fp16, and throws NotSupported for fp64.
#pragma once

#include <algorithm>

#include "megatron/core/cuda_stream.h"
#include "megatron/core/view.h"

namespace megatron::kernels {

/// Rows are split into parts that depend on the shape only; each part is summed separately and the parts are added in
/// order. So the sum does not depend on the number of threads.
constexpr int64_t num_column_sum_parts(int64_t num_rows) { return std::clamp<int64_t>(num_rows / 16, 1, 32); }

/// No backend splits rows into more parts: one for each multiprocessor of an H100.
inline constexpr int64_t kMostColumnSumParts = 132;

/// Bytes of workspace for the sums of `num_columns` columns (all outputs of one call taken together) of rows whose
/// activations are of type `dtype`. `num_rows` is the capacity.
constexpr int64_t column_sum_workspace_bytes(int64_t num_rows, int64_t num_columns, DType dtype) {
  return std::clamp<int64_t>(num_rows, 1, kMostColumnSumParts) * num_columns * (dtype == DType::kFloat64 ? 8 : 4);
}

/// out = sum over rows of x, or out += with `accumulate`. Sums in fp32 (fp64 for fp64).
struct ColumnSumArgs {
  ConstView x;  // [..., f], the last dimension contiguous
  View out;     // [f], any floating dtype
  bool accumulate = false;
  View workspace;  // uint8 [column_sum_workspace_bytes(rows, f, dtype of x)]
};
void column_sum(const CpuStream& stream, const ColumnSumArgs& args);
void column_sum(const CudaStream& stream, const ColumnSumArgs& args);

}  // namespace megatron::kernels
