// Scaled dot-product attention on CUDA, in tiles.
#pragma once

#include "megatron/kernels/attention.h"
#include "megatron/core/cuda_stream.h"

namespace megatron::kernels {

/// As for CpuStream; fp32, bf16 or fp16, products and sums in fp32, d and dv up to 256. Spans, row lists and state are
/// in device memory. Deterministic. @throw NotSupported for fp64 and larger heads.
void attention_forward(const CudaStream& stream, const AttentionForwardArgs& args);
void attention_backward(const CudaStream& stream, const AttentionBackwardArgs& args);
int64_t attention_forward_workspace_bytes(const CudaStream& stream, const AttentionForwardArgs& args);
int64_t attention_backward_workspace_bytes(const CudaStream& stream, const AttentionBackwardArgs& args);

}  // namespace megatron::kernels
