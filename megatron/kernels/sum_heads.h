// Sums over the heads of a token: the gradient of a part that all heads share.
#pragma once

#include "megatron/core/cuda_stream.h"
#include "megatron/core/view.h"

namespace megatron::kernels {

/// y[s, b, d] = sum over n of x[s, b, n, d], in the order of the heads, in fp32 (fp64 for fp64). Any floating dtypes,
/// which may differ (fp64 only together); the last dimension is contiguous, the others may have any strides.
struct SumHeadsArgs {
  ConstView x;  // [s, b, n, d]
  View y;       // [s, b, d]
};
void sum_heads(const CpuStream& stream, const SumHeadsArgs& args);
/// @throw NotSupported for fp64.
void sum_heads(const CudaStream& stream, const SumHeadsArgs& args);

}  // namespace megatron::kernels
