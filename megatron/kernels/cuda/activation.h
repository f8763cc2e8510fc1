// Activation functions, plain and gated, on CUDA.
#pragma once

#include "megatron/core/cuda_stream.h"
#include "megatron/kernels/activation.h"

namespace megatron::kernels {

/// Like the overload for CpuStream. Dtypes: fp32, bf16 or fp16. @throw NotSupported for fp64.
void activation_forward(const CudaStream& stream, const ActivationForwardArgs& args);
void activation_backward(const CudaStream& stream, const ActivationBackwardArgs& args);
void gated_activation_forward(const CudaStream& stream, const GatedActivationForwardArgs& args);
void gated_activation_backward(const CudaStream& stream, const GatedActivationBackwardArgs& args);

}  // namespace megatron::kernels
