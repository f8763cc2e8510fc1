// Rows that are read once and normalised: a team of threads for each row. A thread has few packs of it, which stay in
// registers, while those of its team's next row are in flight.
#pragma once

#include "megatron/kernels/cuda/reduce.cuh"
#include "megatron/kernels/cuda/shared_memory.cuh"

namespace megatron::kernels {

/// A block is (x, y): y teams of x threads, x being a multiple of 32. Thread x of a team has packs x, x + X, ... of the
/// row, `packs` at most. Team y of block i has rows i Y + y, and each (number of blocks) Y after it.
struct RowTeams {
  static constexpr unsigned kMostThreads = 512;  // of a team and of a block
  static constexpr unsigned kMostTeams = 15;     // of several: a barrier for each, and one for the block
  static constexpr int64_t kMostPacks = 8;       // of a thread
  unsigned x = kWarp, y = 1;
  int packs = 1;  // 1, 2, 3, 4 or 8

  /// The fewest threads with `wanted_packs` packs each, and the teams that fill `block_threads` threads.
  RowTeams(const char* kernel, int64_t columns, int64_t wanted_packs, unsigned block_threads) {
    const auto ceil_of = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
    const int64_t row_packs = std::max<int64_t>(1, ceil_of(columns, kPack));
    require<NotSupported>(row_packs <= kMostPacks * int64_t{kMostThreads},
                          "[{}] rows of {} elements: at most {} on CUDA.", kernel, columns,
                          kMostPacks * int64_t{kMostThreads} * kPack);
    x = static_cast<unsigned>(std::min<int64_t>(kMostThreads, ceil_of(row_packs, wanted_packs * kWarp) * kWarp));
    packs = static_cast<int>(ceil_of(row_packs, x));
    if (packs > 4) packs = kMostPacks;
    y = std::max(1u, block_threads / x);
    if (x > kWarp) y = std::min(y, kMostTeams);
  }
  dim3 threads() const { return dim3(x, y); }
  int64_t blocks(int64_t rows) const { return (rows + y - 1) / y; }
};

/// The sums of `values` over the threads of a team; all of them get the same bits. `turn` alternates from call to call
/// between 0 and 1. Threads of other teams take no part, and have a barrier of their own. If only some teams have
/// synchronised so, racecheck of CUDA 13 reports shared memory used after a __syncthreads, which is not a race.
template <int kNum>
__device__ void reduce_team(float (&values)[kNum], int turn) {
  __shared__ float warps[2][kNum][RowTeams::kMostThreads / kWarp];
  for (int offset = kWarp / 2; offset > 0; offset /= 2)
#pragma unroll
    for (int i = 0; i < kNum; ++i) values[i] += __shfl_xor_sync(~0u, values[i], offset);
  if (blockDim.x == kWarp) return;
  const int num_warps = static_cast<int>(blockDim.x / kWarp), first = static_cast<int>(threadIdx.y) * num_warps;
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  if (lane == 0)
#pragma unroll
    for (int i = 0; i < kNum; ++i) warps[turn][i][first + static_cast<int>(threadIdx.x / kWarp)] = values[i];
  asm volatile("bar.sync %0, %1;" ::"r"(threadIdx.y + 1), "r"(blockDim.x) : "memory");
  const int width = num_warps == 1 ? 1 : 2 << (31 - __clz(num_warps - 1)), source = lane & (width - 1);
#pragma unroll
  for (int i = 0; i < kNum; ++i) values[i] = source < num_warps ? warps[turn][i][first + source] : 0;
  for (int offset = width / 2; offset > 0; offset /= 2)
#pragma unroll
    for (int i = 0; i < kNum; ++i) values[i] += __shfl_xor_sync(~0u, values[i], offset);
}

/// Position of pack number k of a thread.
__device__ inline int begin_of(int k) {
  return (k * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x)) * kPack;
}
__device__ inline bool has_pack(const Extent& extent, int k) { return begin_of(k) < static_cast<int>(extent.columns); }
/// Its elements, if it begins in the row.
template <class X>
__device__ int size_of_pack(const Extent& extent, int k) {
  return kIsWhole<X> ? kPack : pack_size(extent.columns, begin_of(k));
}
/// The numbers of a pack that came from an operand of type X, whose dtype may be known when compiling.
template <class X>
__device__ Pack values_of(RawPack raw) {
  if constexpr (kIsWhole<X>) raw.dtype = X::dtype;
  return convert(raw);
}

/// Says whether packs of the next row are prefetched: if registers suffice.
template <class X, int kPacks>
inline constexpr bool kIsAhead = kIsWhole<X>&& kPacks <= 4;

/// Calls run(constant) with the number of packs as a compile-time constant.
template <class Run>
void with_packs(int packs, const Run& run) {
  switch (packs) {
    case 1:
      return run(std::integral_constant<int, 1>());
    case 2:
      return run(std::integral_constant<int, 2>());
    case 3:
      return run(std::integral_constant<int, 3>());
    case 4:
      return run(std::integral_constant<int, 4>());
    default:
      return run(std::integral_constant<int, 8>());
  }
}

}  // namespace megatron::kernels
