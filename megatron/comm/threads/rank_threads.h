// Starts the ranks of a ThreadWorld and deals with their errors.
#pragma once

#include <functional>

#include "megatron/comm/rank_failure.h"
#include "megatron/comm/threads/thread_world.h"

namespace megatron {

/// Kernel threads of each of `num_ranks` ranks that share this machine: max(1, cores / num_ranks).
int threads_per_rank(int num_ranks);

/// Runs `function` once for each rank, each in a thread of its own with threads_per_rank() OpenMP threads, and returns
/// when all have ended. When a rank throws, the others are aborted: none hangs in an operation.
/// @throw RankFailure for the first exception; one that is no CommError comes before those, which are consequences.
void run_rank_threads(ThreadWorld& ranks, const std::function<void(World&)>& function);

}  // namespace megatron
