// Adam and AdamW on CUDA.
#pragma once

#include "megatron/core/cuda_stream.h"
#include "megatron/kernels/adam.h"

namespace megatron::kernels {

/// As for CpuStream, but roots and divisions to two units of the last place; masters in fp32, other buffers fp32, bf16
/// or fp16. @throw DtypeError for fp64.
void adam(const CudaStream& stream, const AdamArgs& args);
void adam_ranges(const CudaStream& stream, const AdamRangesArgs& args);

}  // namespace megatron::kernels
