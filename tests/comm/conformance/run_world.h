// The ranks of the backend under test.
#pragma once

#include <functional>

#include "tests/testing/rank_threads.h"

namespace megatron::testing {

/// Runs `function` on `num_ranks` ranks, at most 8; ranks share nothing that a test writes to. Defined once for each
/// backend: threads/run_world.cpp, mpi/run_world.cpp, nccl/run_world.cpp.
void run_world(int num_ranks, const std::function<void(RankContext&)>& function);

/// Says whether sums of floating-point numbers are formed in rank order and rounded once, whatever the number of ranks.
/// Else only two ranks have no choice.
bool sums_in_rank_order();

}  // namespace megatron::testing
