// Layer normalisation on CUDA.
#pragma once

#include "megatron/core/cuda_stream.h"
#include "megatron/kernels/layer_norm.h"

namespace megatron::kernels {

/// As for CpuStream; fp32, bf16 or fp16. @throw NotSupported for fp64.
void layer_norm_forward(const CudaStream& stream, const LayerNormForwardArgs& args);
void layer_norm_backward(const CudaStream& stream, const LayerNormBackwardArgs& args);

}  // namespace megatron::kernels
