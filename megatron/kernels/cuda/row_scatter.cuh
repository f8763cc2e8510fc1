// Deterministic sums of rows by target: the moves are sorted by (target, source), and each target adds its rows in
// order.
#pragma once

#include "megatron/core/cuda_stream.h"
#include "megatron/kernels/cuda/launch.cuh"

namespace megatron::kernels {

/// A move is target << 32 | source; this one does nothing and comes last.
inline constexpr unsigned long long kNoMove = ~0ull;

/// Sorts `count` moves in place, then out[target] = sum of x[source] in fp32, rounded once, or out[target] +=. Without
/// `accumulate` the rows of `out` must be zero before. `count` is known to the host and may include empty moves.
void sort_moves(const CudaStream& stream, unsigned long long* moves, int64_t count);
void add_moved_rows(const CudaStream& stream, const unsigned long long* moves, int64_t count, const ConstView& x,
                    const View& out, bool accumulate);

/// Moves in a workspace, after a check of its size.
inline unsigned long long* moves_of(const View& workspace, int64_t count) {
  require<InternalError>(count == 0 || (workspace.defined() && workspace.num_elements() >= 8 * count),
                         "[cuda] {} bytes of workspace are needed for {} moves of rows", 8 * count, count);
  require<NotSupported>(count < (int64_t{1} << 31), "[cuda] {} rows are too many to be sorted.", count);
  return static_cast<unsigned long long*>(workspace.data);
}

}  // namespace megatron::kernels
