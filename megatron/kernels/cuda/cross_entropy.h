// Cross entropy on CUDA.
#pragma once

#include "megatron/core/cuda_stream.h"
#include "megatron/kernels/cross_entropy.h"

namespace megatron::kernels {

/// As for CpuStream; logits fp32, bf16 or fp16, statistics and losses fp32. @throw NotSupported for fp64.
void cross_entropy_max(const CudaStream& stream, const CrossEntropyMaxArgs& args);
void cross_entropy_sums(const CudaStream& stream, const CrossEntropySumsArgs& args);
void cross_entropy_loss(const CudaStream& stream, const CrossEntropyLossArgs& args);
void cross_entropy_forward(const CudaStream& stream, const CrossEntropyForwardArgs& args);
void cross_entropy_backward(const CudaStream& stream, const CrossEntropyBackwardArgs& args);

}  // namespace megatron::kernels
