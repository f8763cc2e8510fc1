// Initial values of weights on CUDA.
#pragma once

#include "megatron/core/cuda_stream.h"
#include "megatron/kernels/random_fill.h"

namespace megatron::kernels {

/// Like the overload for CpuStream, with the same numbers bit for bit. @throw NotSupported for fp64.
void fill_normal(const CudaStream& stream, const NormalFillArgs& args);

}  // namespace megatron::kernels
