// Deterministic sums of rows by target: the moves are sorted by (target, source), and each target adds its rows in
// order.
#pragma once

#include "megatron/core/cuda_stream.h"
#include "megatron/kernels/cuda/launch.cuh"

namespace megatron::kernels {

/// A move is target << 32 | source; moves from kNoMove << 32 on are empty and come last.
using Move = unsigned long long;
inline constexpr Move kNoTarget = 0xFFFFFFFFull;

/// Threads and moves of a block that sorts.
inline constexpr int kSortThreads = 1024, kSortedRun = 2 * kSortThreads;

/// Bitonic sort (Batcher 1968) of the first `size` moves, size <= kSortedRun, by a block of kSortThreads threads, with
/// all comparisons upwards: the first step of each merge compares with the mirror image. Then moves past the end need
/// no room, as they would be the largest and never move.
__device__ inline void sort_run(Move (&run)[kSortedRun], int size) {
  const int pair = static_cast<int>(threadIdx.x);
  for (int merge = 2; merge <= kSortedRun; merge *= 2) {
    for (int width = merge; width > 1; width /= 2) {
      __syncthreads();
      const int half = width / 2, first = pair / half * width, place = pair % half;
      const int low = first + place, high = width == merge ? first + width - 1 - place : low + half;
      if (high >= size) continue;
      const Move a = run[low], b = run[high];
      if (a > b) run[low] = b, run[high] = a;
    }
  }
  __syncthreads();
}

/// Sorted runs of kSortedRun moves: row r of the extent to target(r), where that is not negative.
template <class Target>
__global__ void __launch_bounds__(kSortThreads) list_moves_kernel(Extent extent, Target target, Move* runs) {
  __shared__ Move run[kSortedRun];
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kSortedRun;
  const int size = static_cast<int>(min(extent.rows - first, int64_t{kSortedRun}));
  for (int i = static_cast<int>(threadIdx.x); i < size; i += kSortThreads) {
    const int64_t row = first + i, to = row < extent.true_rows() ? target(row) : -1;
    run[i] = (to < 0 ? kNoTarget : static_cast<Move>(to)) << 32 | static_cast<uint32_t>(row);
  }
  sort_run(run, size);
  for (int i = static_cast<int>(threadIdx.x); i < size; i += kSortThreads) runs[first + i] = run[i];
}

/// All runs merged into `moves`.
void merge_runs(const CudaStream& stream, const Move* runs, int64_t count, Move* moves);
/// out[target] = sum of x[source] in fp32, rounded once, or out[target] +=. Without `accumulate` the rows of `out` must
/// be zero before. The moves are sorted.
void add_moved_rows(const CudaStream& stream, const Move* moves, int64_t count, const ConstView& x, const View& out,
                    bool accumulate);

/// out[target(row)] = sum of those rows of x, or += ; rows of `extent`, which is that of x.
template <class Target>
void scatter_rows(const CudaStream& stream, const char* kernel, const Extent& extent, const Target& target,
                  const ConstView& x, const View& out, bool accumulate, const View& workspace) {
  const int64_t count = extent.rows, bytes = 2 * static_cast<int64_t>(sizeof(Move)) * count;
  require<InternalError>(workspace.defined() && workspace.num_elements() >= bytes,
                         "[{}] {} bytes of workspace are needed for {} moves of rows", kernel, bytes, count);
  require<NotSupported>(count < (int64_t{1} << 31), "[{}] {} rows are too many to be sorted.", kernel, count);
  Move* runs = static_cast<Move*>(workspace.data);
  Move* moves = count > kSortedRun ? runs + count : runs;
  list_moves_kernel<<<static_cast<unsigned>((count + kSortedRun - 1) / kSortedRun), kSortThreads, 0, stream.stream>>>(
      extent, target, runs);
  check_launch(kernel);
  if (moves != runs) merge_runs(stream, runs, count, moves);
  add_moved_rows(stream, moves, count, x, out, accumulate);
}

}  // namespace megatron::kernels
