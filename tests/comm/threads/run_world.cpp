#include "tests/comm/conformance/run_world.h"

namespace megatron::testing {

void run_world(int num_ranks, const std::function<void(RankContext&)>& function) { run_ranks(num_ranks, function); }

bool sums_in_rank_order() { return true; }

}  // namespace megatron::testing
