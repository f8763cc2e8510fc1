// Data-parallel messages of a step of four ranks against those of Megatron Core (tests/golden/parallelism); those of
// tensor-parallel ranks: tests/models/gpt/tensor_parallel_golden_test.cpp.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "megatron/distributed/distributed_data_parallel.h"
#include "megatron/models/gpt/gpt_model.h"
#include "tests/testing/golden_collectives.h"
#include "tests/testing/rank_threads.h"
#include "tests/testing/test_device.h"

namespace megatron::testing {
namespace {

using Json = nlohmann::json;
std::vector<Collective> expected_calls(const Json& step) {
  std::vector<Collective> calls = golden_collectives(step["phases"]["finalize"], "dp_cp");
  const std::vector<Collective> gather = golden_collectives(step["phases"]["gather"], "dp_cp");
  calls.insert(calls.end(), gather.begin(), gather.end());
  return calls;
}

TEST(CollectivesGolden, GradientsAndWeightsMoveAsInMegatron) {
  const Json steps = golden_collective_steps();
  ASSERT_FALSE(steps.empty());
  int num_compared = 0;
  for (const Json& step : steps) {
    if (step["dp"] == 1) continue;  // nothing to reduce
    ++num_compared;
    const int tp = step["tp"], num_ranks = tp * step["dp"].get<int>();
    run_ranks(num_ranks, [&](RankContext& rank) {
      TestDevice test(DeviceKind::kCpu, 1);
      const Context ctx = test.context();
      const ProcessGroupCollection groups = ProcessGroupCollection::make(
          rank.world, ParallelLayout({.world_size = num_ranks, .tensor_model_parallel_size = tp}));
      const TransformerConfig config = config_of_golden_step(step);
      const GptModel model({.ctx = ctx, .config = config, .groups = groups, .path = ""});
      DistributedDataParallel ddp(ctx, {model.parameters()}, groups, {.use_distributed_optimizer = step["dist_opt"]});
      const int64_t first = rank.world.recorder().num_operations();
      ddp.begin_step();
      ddp.finish_grad_sync();
      ddp.start_param_sync();
      ddp.finish_param_sync();
      EXPECT_EQ(collectives_since(rank.world.recorder(), first), expected_calls(step))
          << step["model"] << " tp " << step["tp"] << " sharded " << step["dist_opt"] << " rank " << rank.rank;
    });
  }
  EXPECT_GT(num_compared, 0);
}

}  // namespace
}  // namespace megatron::testing
