// Rotary position embedding.
// The overloads for CUDA take fp32, bf16 and fp16, with tables in fp32 and positions in device memory, and throw
// NotSupported for fp64.
#pragma once

#include "megatron/core/cuda_stream.h"
#include "megatron/core/sequence_layout_view.h"
#include "megatron/core/view.h"

namespace megatron::kernels {

/// cos and sin of position * frequency, times `magnitude`; row p is position first_position + p. Angles are computed in
/// fp64 and the results rounded once. Frequencies: rope_frequencies.h.
struct RopeTableArgs {
  ConstView frequencies;  // [d_rot / 2] fp64, radians per position
  double magnitude = 1;
  int64_t first_position = 0;
  View cos, sin;  // [positions, d_rot / 2] fp32 or fp64, contiguous
};
void rope_table(const CpuStream& stream, const RopeTableArgs& args);
void rope_table(const CudaStream& stream, const RopeTableArgs& args);

/// The pairing of elements of a head: a pair (a, b) is rotated to (a cos - b sin, b cos + a sin).
enum class RopePairs {
  kHalves,       // element i and i + d_rot / 2
  kInterleaved,  // elements 2i and 2i + 1
};

/// Rotates the first d_rot elements of each head by the angle of its row's position; the others are copied. Source: Su
/// et al. 2021 (arXiv:2104.09864). All dimensions but the last may have any strides; d is contiguous. Backward is the
/// same call with the gradient and `inverse`.
struct RopeArgs {
  ConstView x;         // [s, b, n, d], or [s, b, g, n / g, d]: heads in groups
  View y;              // either; may be x
  ConstView cos, sin;  // [positions, d_rot / 2] fp32 (fp64 for fp64), contiguous
  SequenceLayoutView layout;
  RopePairs pairs = RopePairs::kHalves;
  bool inverse = false;
};
void rope(const CpuStream& stream, const RopeArgs& args);
void rope(const CudaStream& stream, const RopeArgs& args);

}  // namespace megatron::kernels
