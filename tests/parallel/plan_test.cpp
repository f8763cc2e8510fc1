// A rank planned alone, on the meta device in a world without other ranks, against the same rank among all.
#include <gtest/gtest.h>

#include <vector>

#include "megatron/comm/meta/meta_world.h"
#include "megatron/comm/threads/rank_threads.h"
#include "megatron/training/config/layouts.h"
#include "tests/parallel/layout_run.h"
#include "tests/training/small_trainer.h"

namespace megatron::testing {
namespace {

const std::vector<Layout> kLayouts = {
    {"", 3},
    {" --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather --ddp-bucket-size 3000", 3},
    {" --use-distributed-optimizer --num-distributed-optimizer-instances 2 --no-calculate-per-token-loss", 4},
    {" --tensor-model-parallel-size 2 --sequence-parallel --use-distributed-optimizer", 4},
    {" --pipeline-model-parallel-size 2 --use-distributed-optimizer --overlap-grad-reduce --ddp-bucket-size 3000", 4},
    {" --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --use-distributed-optimizer", 8},
    {" --tensor-model-parallel-size 4 --sequence-parallel --tp-comm-overlap", 4},
    {" --tensor-model-parallel-size 2 --sequence-parallel --tp-comm-overlap --tp-comm-overlap-delay-wgrad", 4},
    {" --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --pipeline-schedule zb-h1 --sequence-parallel "
     "--tp-comm-overlap --tp-comm-overlap-ag-splits 3 --tp-comm-overlap-rs-splits 3 --tp-comm-overlap-rs-dgrad",
     4},
    {" --context-parallel-size 2 --use-distributed-optimizer", 4},
    {" --context-parallel-size 4 --cp-comm-type all_gather", 4},
    {" --context-parallel-size 2 --cp-comm-type a2a --tensor-model-parallel-size 2 --sequence-parallel", 4},
    {" --context-parallel-size 4 --cp-comm-type a2a+p2p --hierarchical-context-parallel-sizes 2 2", 4},
};

/// The allocations and sends of a step of one rank.
struct Plan {
  std::vector<Arena::Event> events;
  int64_t peak_bytes = 0;
  std::vector<std::string> calls;  // "op sequence site of group, bytes", in order of issue
};

Plan plan_of(const PretrainConfig& config, World& world, DeviceKind device) {
  Plan plan;
  const ProcessGroupCollection groups = ProcessGroupCollection::make(world, parallel_layout_of(config));
  const int64_t first = world.recorder().num_operations();
  Trainer trainer(config, {.device = device, .record_events = true, .groups = groups});
  trainer.train_step(batches_of(config, 0, groups.dp.rank()));
  plan.events = trainer.device().arena.events();
  plan.peak_bytes = trainer.device().arena.total().peak;
  EXPECT_LE(world.recorder().num_operations() - first, World::kRecorderCapacity);
  for (const OperationRecord& record : world.recorder().since(first))
    plan.calls.push_back(fmt::format("{}, {} bytes", record.to_string(), record.bytes()));
  return plan;
}

TEST(ParallelPlan, HasTheMemoryAndTheMessagesOfEveryRankOfTheRealRun) {
  for (const std::string& model : {gpt2_like(" --bf16"), llama_like(" --bf16 --recompute-activations")})
    for (const Layout& layout : kLayouts) {
      SCOPED_TRACE(layout.words);
      const PretrainConfig config = small_config(
          model + " --num-layers 4 --global-batch-size 12 --micro-batch-size 1" + layout.words, layout.num_ranks);
      std::vector<Plan> real(static_cast<size_t>(layout.num_ranks));
      ThreadWorld ranks(layout.num_ranks, std::chrono::minutes(1));
      run_rank_threads(ranks, [&](World& world) {
        real[static_cast<size_t>(world.rank())] = plan_of(config, world, DeviceKind::kCpu);
      });
      for (int rank = 0; rank < layout.num_ranks; ++rank) {
        MetaWorld world(rank, layout.num_ranks);
        const Plan plan = plan_of(config, world, DeviceKind::kMeta);
        const Plan& expected = real[static_cast<size_t>(rank)];
        EXPECT_EQ(plan.calls, expected.calls) << "rank " << rank;
        EXPECT_TRUE(plan.events == expected.events) << "rank " << rank;
        EXPECT_EQ(plan.peak_bytes, expected.peak_bytes) << "rank " << rank;
        EXPECT_GT(plan.calls.size(), 3U);
      }
    }
}

TEST(ParallelPlan, ShardsOfTheOptimizerFreeMemory) {
  const auto peak = [](int num_ranks, const std::string& words) {
    const PretrainConfig config = small_config(
        llama_like(" --bf16 --num-layers 4 --global-batch-size 8 --micro-batch-size 1" + words), num_ranks);
    MetaWorld world(0, num_ranks);
    return plan_of(config, world, DeviceKind::kMeta).peak_bytes;
  };
  // Master weights and two moments: 12 bytes a parameter, of which a rank of 8 keeps an eighth.
  const PretrainConfig config = small_config(llama_like(" --num-layers 4"));
  int64_t num_parameters = 0;
  for (const Parameter* parameter : Trainer(config, {.device = DeviceKind::kMeta}).model().parameters())
    num_parameters += parameter->shape().num_elements();
  const int64_t saved = peak(8, "") - peak(8, " --use-distributed-optimizer");
  EXPECT_GT(saved, 12 * num_parameters * 7 / 8 * 9 / 10) << "a tenth is for padding";
}

}  // namespace
}  // namespace megatron::testing
