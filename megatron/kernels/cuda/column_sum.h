// Sums over rows on CUDA.
#pragma once

#include "megatron/core/cuda_stream.h"
#include "megatron/kernels/column_sum.h"

namespace megatron::kernels {

/// As for CpuStream; fp32, bf16 or fp16. @throw NotSupported for fp64.
void column_sum(const CudaStream& stream, const ColumnSumArgs& args);

}  // namespace megatron::kernels
