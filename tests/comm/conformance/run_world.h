// The ranks of the backend under test.
#pragma once

#include <functional>

#include "tests/testing/rank_threads.h"

namespace megatron::testing {

/// Runs `function` on `num_ranks` ranks, at most 8; ranks share nothing that a test writes to. Defined once for each
/// backend: threads/run_world.cpp, mpi/run_world.cpp.
void run_world(int num_ranks, const std::function<void(RankContext&)>& function);

}  // namespace megatron::testing
