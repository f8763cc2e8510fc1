// Our own kernels for attention on CUDA: any mask, dropout, sinks and strides.
#pragma once

#include "megatron/core/cuda_stream.h"
#include "megatron/kernels/attention.h"

namespace megatron::kernels {

/// fp32, bf16 or fp16, d and dv up to 256, sums in fp32. Deterministic. Forward needs no workspace. bf16 and fp16 heads
/// of up to 128 run on tensor cores, with probabilities and gradients of scores rounded to the dtype; larger heads and
/// fp32 in products of fp32.
/// @throw NotSupported for fp64 and larger heads.
void tiled_attention_forward(const CudaStream& stream, const AttentionForwardArgs& args);
void tiled_attention_backward(const CudaStream& stream, const AttentionBackwardArgs& args);
int64_t tiled_attention_workspace_bytes(const AttentionBackwardArgs& args);

}  // namespace megatron::kernels
