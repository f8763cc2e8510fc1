// Matmuls by oneDNN.
#pragma once

#include <cstdint>

#include "megatron/core/stream.h"
#include "megatron/core/view.h"

namespace megatron::kernels {

/// The properties for which oneDNN compiles a matmul.
struct MatmulShape {
  int64_t m = 0, n = 0, k = 0;
  int64_t a_stride = 0, b_stride = 0, c_stride = 0;  // of rows in memory, in elements
  DType a = DType::kFloat32, c = DType::kFloat32, bias = DType::kFloat32;
  bool has_bias = false, transpose_a = false, transpose_b = false, accumulate = false;
  int32_t num_threads = 1;
  bool operator==(const MatmulShape&) const = default;
};

struct MatmulData {
  const void *a, *b, *bias;
  void *c, *workspace;
};

/// False if oneDNN has no kernel for these dtypes on this machine, or only its slow reference, or only one that
/// emulates the machine's missing bf16 instructions (on AVX-512 without them at a quarter of the built-in tiles' rate).
bool library_has_matmul(const CpuStream& stream, const MatmulShape& shape);
int64_t library_matmul_workspace_bytes(const CpuStream& stream, const MatmulShape& shape);
/// c (+)= op(a) op(b) + bias. All sizes must be positive.
void library_matmul(const CpuStream& stream, const MatmulShape& shape, const MatmulData& data);
/// True if a row of c has the same bits whatever the number of rows of a and its own number, where b is transposed and
/// there are fewer than a thousand rows: oneDNN's batch-reduce kernels, for which it takes AVX-512, with instructions
/// for bf16 if that is the dtype, add in the same order for every row. Its `gemm` does not.
bool library_rows_are_independent(DType dtype);

}  // namespace megatron::kernels
