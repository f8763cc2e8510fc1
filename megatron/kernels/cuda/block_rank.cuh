// The number of a thread among those of its block that have a property, in the order of the threads.
#pragma once

#include "megatron/kernels/cuda/reduce.cuh"

namespace megatron::kernels {

struct BlockRank {
  int before = 0;  // threads with a lower number that have the property
  int total = 0;   // threads of the block that have it
};

/// All kThreads threads of a one-dimensional block take part.
template <int kThreads>
__device__ BlockRank rank_in_block(bool has_property) {
  constexpr int kWarps = kThreads / kWarp;
  __shared__ int warps[kWarps];
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  const unsigned votes = __ballot_sync(~0u, has_property);
  __syncthreads();
  if (lane == 0) warps[warp] = __popc(votes);
  __syncthreads();
  BlockRank rank{__popc(votes & ((1u << lane) - 1)), 0};
  for (int i = 0; i < kWarps; ++i) {
    if (i < warp) rank.before += warps[i];
    rank.total += warps[i];
  }
  return rank;
}

}  // namespace megatron::kernels
