// Dropout, with bias and residual, on CUDA.
#pragma once

#include "megatron/core/cuda_stream.h"
#include "megatron/kernels/dropout.h"

namespace megatron::kernels {

/// As for CpuStream, with the same mask bit for bit; fp32, bf16 or fp16. @throw NotSupported for fp64.
void bias_dropout_add_forward(const CudaStream& stream, const BiasDropoutAddForwardArgs& args);
void bias_dropout_add_backward(const CudaStream& stream, const BiasDropoutAddBackwardArgs& args);

}  // namespace megatron::kernels
