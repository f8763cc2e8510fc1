// Statistics of gradients for the optimizer, on CUDA.
#pragma once

#include "megatron/core/cuda_stream.h"
#include "megatron/kernels/gradient_statistics.h"

namespace megatron::kernels {

/// As for CpuStream, with the same bits; fp32, bf16 or fp16. No result reaches the host. @throw NotSupported for fp64.
void largest_absolute(const CudaStream& stream, const LargestAbsoluteArgs& args);
void squared_sum(const CudaStream& stream, const SquaredSumArgs& args);
void count_zeros(const CudaStream& stream, const CountZerosArgs& args);
void clip_factor(const CudaStream& stream, const ClipFactorArgs& args);

}  // namespace megatron::kernels
