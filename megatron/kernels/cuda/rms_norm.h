// Root mean square normalisation on CUDA.
#pragma once

#include "megatron/core/cuda_stream.h"
#include "megatron/kernels/rms_norm.h"

namespace megatron::kernels {

/// Like the overload for CpuStream. Dtypes: fp32, bf16 or fp16. @throw NotSupported for fp64.
void rms_norm_forward(const CudaStream& stream, const RmsNormForwardArgs& args);
void rms_norm_backward(const CudaStream& stream, const RmsNormBackwardArgs& args);

}  // namespace megatron::kernels
