// Root mean square normalisation on CUDA: the overload beside the one for CpuStream.
#pragma once

#include "megatron/kernels/cuda/cuda_stream.h"
#include "megatron/kernels/rms_norm.h"

namespace megatron::kernels {

/// As for CpuStream. x, residual, residual_out and y have one dtype (fp32, bf16 or fp16) and contiguous rows one after
/// the other; gamma has it too. @throw NotSupported for other layouts, DeviceError if the launch fails.
void rms_norm_forward(const CudaStream& stream, const RmsNormForwardArgs& args);

}  // namespace megatron::kernels
