// Built-in attention kernels on CUDA: any mask, dropout, sinks and strides.
#pragma once

#include "megatron/core/cuda_stream.h"
#include "megatron/kernels/attention.h"

namespace megatron::kernels {

/// Shared memory that a block needs for the large tiles, and for the small ones: compute capability 8.0, 9.0 and 10.0
/// have the first, 8.6, 8.9 and 12.0 the second.
inline constexpr int64_t kLargeTileBytes = 160 * 1024, kSmallTileBytes = 99 * 1024;

/// fp32, bf16 or fp16, d and dv up to 256, sums in fp32. Deterministic. Forward needs no workspace. bf16 and fp16 heads
/// of up to 128 run on tensor cores, with probabilities and gradients of scores rounded to the dtype; larger heads and
/// fp32 use fp32 matmuls.
/// @param shared_bytes  of a block of the GPU (block_shared_bytes()): smaller tiles are used if it has less than
///        kLargeTileBytes, which changes the order of sums. At least kSmallTileBytes.
/// @throw NotSupported for fp64 and larger heads.
void tiled_attention_forward(const CudaStream& stream, const AttentionForwardArgs& args, int64_t shared_bytes);
void tiled_attention_backward(const CudaStream& stream, const AttentionBackwardArgs& args, int64_t shared_bytes);
int64_t tiled_attention_workspace_bytes(const AttentionBackwardArgs& args);

}  // namespace megatron::kernels
