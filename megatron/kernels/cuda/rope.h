// Rotary position embedding on CUDA.
#pragma once

#include "megatron/core/cuda_stream.h"
#include "megatron/kernels/rope.h"

namespace megatron::kernels {

/// Like the overload for CpuStream. Dtypes: fp32, bf16 or fp16, tables in fp32. Positions are in device memory. @throw
/// NotSupported for fp64.
void rope_table(const CudaStream& stream, const RopeTableArgs& args);
void rope(const CudaStream& stream, const RopeArgs& args);

}  // namespace megatron::kernels
