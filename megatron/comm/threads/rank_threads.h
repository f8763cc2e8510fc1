// Starts the ranks of a ThreadWorld and handles their errors.
#pragma once

#include <chrono>
#include <functional>
#include <vector>

#include "megatron/comm/rank_failure.h"
#include "megatron/comm/threads/thread_world.h"

namespace megatron {

/// Kernel threads of each of `num_ranks` ranks that share this machine: max(1, cores / num_ranks).
int threads_per_rank(int num_ranks);

/// Time for ranks to end after a failure, so that all end within the timeout + 5 s.
constexpr std::chrono::milliseconds kTimeToEnd{3000};

/// Notifications to the starter of ranks while they run; called from any thread, one call at a time.
struct RankThreadHooks {
  /// The failure that run_rank_threads() will throw, as soon as it is known; again when its cause is known later.
  std::function<void(const RankFailure&)> on_failure;
  /// `ranks` still run kTimeToEnd after the failure: they hang in their own code. Only the process can be ended, not
  /// a thread; if this returns or is empty, run_rank_threads() keeps waiting.
  std::function<void(const RankFailure&, const std::vector<int>& ranks)> on_hang;
};

/// Runs `function` once for each rank, each in a thread of its own with threads_per_rank() OpenMP threads, and returns
/// when all have ended. When a rank throws, the others are aborted: none hangs in an operation. A rank that has not
/// ended when the timeout of its World has passed since another did fails too; one that gets no thread: OutOfMemory.
/// @throw RankFailure for the first exception; other types come before CommError, which is a consequence.
void run_rank_threads(ThreadWorld& ranks, const std::function<void(World&)>& function,
                      const RankThreadHooks& hooks = {});

}  // namespace megatron
