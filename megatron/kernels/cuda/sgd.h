// Stochastic gradient descent on CUDA.
#pragma once

#include "megatron/core/cuda_stream.h"
#include "megatron/kernels/sgd.h"

namespace megatron::kernels {

/// Like the overload for CpuStream. Dtypes: masters in fp32, other buffers fp32, bf16 or fp16. @throw DtypeError for
/// fp64.
void sgd(const CudaStream& stream, const SgdArgs& args);
void sgd_ranges(const CudaStream& stream, const SgdRangesArgs& args);

}  // namespace megatron::kernels
