// Reductions over the threads of a row, in an order that depends only on the shape.
#pragma once

#include <cuda_runtime.h>

#include "megatron/kernels/cuda/launch.cuh"

namespace megatron::kernels {

inline constexpr int kWarp = 32;
inline constexpr int kMaxRowThreads = 1024;

/// A block is (x, y): y rows of x threads. x is 32 with several rows, or any multiple of 32 with one row.
struct RowBlock {
  unsigned x = kWarp, y = 1;
  /// Block shape with `packs_per_thread` packs for each thread, up to `most` threads.
  explicit RowBlock(int64_t columns, int64_t packs_per_thread = 1, int64_t most = kMaxRowThreads) {
    const int64_t packs = (columns + kPack - 1) / kPack, useful = (packs + packs_per_thread - 1) / packs_per_thread;
    if (packs <= 2 * kWarp)
      y = 8;
    else
      x = static_cast<unsigned>(std::min((useful + kWarp - 1) / kWarp * kWarp, most));
  }
  dim3 threads() const { return dim3(x, y); }
  unsigned blocks(int64_t rows) const { return static_cast<unsigned>((rows + y - 1) / y); }
};

__device__ inline int64_t row_of_block() { return static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y; }

struct Plus {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};
/// The larger number; NaN if one is NaN.
struct LargerOrNan {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a > b || a != a ? a : b;
  }
};

/// Reduces over the threads of a row; all get the same bits. All threads of the block take part. T: any trivial type.
template <class T, class Combine>
__device__ T reduce_row(T value, Combine combine) {
  for (int offset = kWarp / 2; offset > 0; offset /= 2) value = combine(value, __shfl_xor_sync(~0u, value, offset));
  if (blockDim.x == kWarp) return value;
  __shared__ T warps[kMaxRowThreads / kWarp];
  __syncthreads();
  if (threadIdx.x % kWarp == 0) warps[threadIdx.x / kWarp] = value;
  __syncthreads();
  value = warps[0];
  for (unsigned warp = 1; warp < blockDim.x / kWarp; ++warp) value = combine(value, warps[warp]);
  return value;
}

}  // namespace megatron::kernels
