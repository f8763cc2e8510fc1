// Rotary position embedding with its gradient, alone and fused with the split of the mixed projection.
#pragma once

#include "megatron/autograd/tape.h"
#include "megatron/core/sequence_layout.h"
#include "megatron/kernels/rope.h"
#include "megatron/kernels/rope_frequencies.h"
#include "megatron/ops/split_qkv.h"

namespace megatron {

/// cos and sin of every position and frequency. Made once per model; read by every layer.
struct RopeTable {
  Tensor cos, sin;  // [positions, d_rot / 2] fp32 (fp64 for fp64)
  kernels::RopePairs pairs = kernels::RopePairs::kHalves;

  static RopeTable make(const Context& ctx, const kernels::RopeSettings& settings, kernels::RopePairs pairs,
                        int64_t num_positions, DType dtype);
};

/// Rotates the first d_rot elements of each head by its token's position (arXiv:2104.09864).
/// @param x  [s, b, n, d], floating. Nothing is saved: the gradient is the inverse rotation.
Tensor rope(Context& ctx, const Tensor& x, const RopeTable& table, const SequenceLayout& layout);

/// split_qkv fused with the rotation of query and key, with the bits of rope.
/// @param mixed  [s, b, g * group_size * d], floating. Nothing is saved.
QueryKeyValue split_rotated_qkv(Context& ctx, const Tensor& mixed, const MixedHeads& heads, const RopeTable& table,
                                const SequenceLayout& layout);

}  // namespace megatron
