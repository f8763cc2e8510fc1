// Our own kernels for attention on CUDA: any mask, dropout, sinks and strides.
#pragma once

#include "megatron/core/cuda_stream.h"
#include "megatron/kernels/attention.h"

namespace megatron::kernels {

/// fp32, bf16 or fp16, products and sums in fp32, d and dv up to 256. Deterministic. Forward needs no workspace.
/// @throw NotSupported for fp64 and larger heads.
void tiled_attention_forward(const CudaStream& stream, const AttentionForwardArgs& args);
void tiled_attention_backward(const CudaStream& stream, const AttentionBackwardArgs& args);
int64_t tiled_attention_workspace_bytes(const AttentionBackwardArgs& args);

}  // namespace megatron::kernels
