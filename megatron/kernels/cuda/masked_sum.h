// The loss of a micro-batch on CUDA.
#pragma once

#include "megatron/core/cuda_stream.h"
#include "megatron/kernels/masked_sum.h"

namespace megatron::kernels {

/// Like the overload for CpuStream, with its own fixed order of additions.
void masked_sum_forward(const CudaStream& stream, const MaskedSumForwardArgs& args);
void masked_sum_backward(const CudaStream& stream, const MaskedSumBackwardArgs& args);

void mean_loss_weights(const CudaStream& stream, const MeanLossWeightsArgs& args);

}  // namespace megatron::kernels
