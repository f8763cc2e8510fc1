// n ranks as threads, for tests of everything parallel.
#pragma once

#include <chrono>
#include <functional>
#include <numeric>
#include <vector>

#include "megatron/comm/threads/rank_threads.h"

namespace megatron::testing {

struct RankContext {
  int rank;
  int size;
  World& world;
  ProcessGroup group;  // of all ranks
};

/// Runs `function` on `num_ranks` threads. The first exception of a rank aborts the others and is thrown as
/// RankFailure. EXPECT_ works in a rank; ASSERT_ ends its rank, and the others fail instead of hanging.
inline void run_ranks(int num_ranks, const std::function<void(RankContext&)>& function,
                      std::chrono::milliseconds timeout = std::chrono::minutes(2), const RankThreadHooks& hooks = {}) {
  ThreadWorld ranks(num_ranks, timeout);
  std::vector<int> all(static_cast<size_t>(num_ranks));
  std::iota(all.begin(), all.end(), 0);
  run_rank_threads(
      ranks,
      [&](World& world) {
        RankContext context{world.rank(), world.size(), world, world.split("world", {all}).value()};
        function(context);
      },
      hooks);
}

}  // namespace megatron::testing
