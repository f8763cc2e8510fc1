// Main parameters in two halves on CUDA.
#pragma once

#include "megatron/core/cuda_stream.h"
#include "megatron/kernels/main_params.h"

namespace megatron::kernels {

/// As for CpuStream.
void split_main_params(const CudaStream& stream, const SplitMainParamsArgs& args);
void join_main_params(const CudaStream& stream, const JoinMainParamsArgs& args);

}  // namespace megatron::kernels
