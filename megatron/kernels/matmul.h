// Matmuls.
#pragma once

#include "megatron/core/stream.h"
#include "megatron/core/view.h"

namespace megatron::kernels {

/// c = op(a) op(b) + bias, or c += with `accumulate`; op may transpose. Row-major; rows may be strided (stride of
/// dimension 0), columns are contiguous.
/// Dtypes: a and b the same, any floating; c that of a, or float32 for half precision (weight gradients in fp32).
/// Sums in fp32, fp64 for fp64.
/// Bounded rows of a and c bound m, or k if a is transposed; those of b bound k. Rows of c past the bound are not
/// written. An empty sum is 0, plus the bias.
/// @throw ShapeError, DtypeError if the operands do not fit together.
struct MatmulArgs {
  ConstView a;  // [m, k]; [k, m] if transpose_a
  ConstView b;  // [k, n]; [n, k] if transpose_b
  View c;       // [m, n]; read with `accumulate`
  bool transpose_a = false, transpose_b = false;
  ConstView bias;           // [n], dtype of a or float32; optional
  bool accumulate = false;  // c += instead of =
  View workspace;           // uint8 [matmul_workspace_bytes(stream, args)]
};
void matmul(const CpuStream& stream, const MatmulArgs& args);

/// Depends on shapes, strides and dtypes only: the data of the views may be null. The first call for a shape prepares
/// its matmul, which takes about a third of a millisecond.
int64_t matmul_workspace_bytes(const CpuStream& stream, const MatmulArgs& args);

}  // namespace megatron::kernels
