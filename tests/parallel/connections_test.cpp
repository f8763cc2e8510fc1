// Ranks connect before their first step exactly what real steps use. Ranks on GPUs hang or fail where
// one is missing; where one is too many, they take longer to start.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "megatron/comm/threads/rank_threads.h"
#include "megatron/training/config/layouts.h"
#include "megatron/training/planning/num_streams.h"
#include "megatron/training/planning/step_plan.h"
#include "tests/parallel/document_mix.h"
#include "tests/parallel/gpu_layouts.h"
#include "tests/parallel/layout_run.h"
#include "tests/testing/noted_world.h"
#include "tests/testing/rank_places.h"
#include "tests/training/small_trainer.h"

namespace megatron::testing {
namespace {

/// Groups that a layout may have and that not every model and optimizer uses.
constexpr int64_t kUnusedStreams = 4;

/// Takes what one rank of a layout of threads uses in two steps and an evaluation. @param mix  of documents; empty:
/// samples are whole
std::vector<Connections> connections_of_ranks(const PretrainConfig& config, int num_ranks, const Mix& mix = {}) {
  std::vector<Connections> used(static_cast<size_t>(num_ranks));
  ThreadWorld ranks(num_ranks, std::chrono::minutes(9));
  run_rank_threads(ranks, [&](World& real) {
    NotedWorld world(real);
    Trainer trainer(config, {.groups = ProcessGroupCollection::make(world, parallel_layout_of(config))});
    world.forget();
    if (mix.empty()) train(trainer, 0, 2);
    for (int step = 0; !mix.empty() && step < 2; ++step) trainer.train_step(batches_of_mix(trainer, step, mix));
    trainer.evaluate(batches_of(config, 2, trainer.groups().dp.rank()));
    used[static_cast<size_t>(real.rank())] = world.connections();
  });
  return used;
}

std::string describe(const Connections& connections) {
  std::string text;
  for (const auto& [used, use] : connections) {
    const auto& [group, sender, receiver, tag] = used;
    text += tag < 0 ? group : fmt::format("{} {} -> {} by {}", group, sender, receiver, tag);
    if (use.connects_pairs()) text += ", in pairs";
    const bool has_bytes = use.largest > 0 && (used.is_channel() || use.copies_rows());
    text += has_bytes ? fmt::format(", {} bytes; ", use.largest) : "; ";
  }
  return text;
}

Connections planned_for(const PretrainConfig& config, int num_ranks, int rank) {
  return plan_steps(config, rank, DeviceKind::kCpu, places_on_hosts_of(num_ranks, num_ranks)).connections;
}

TEST(StepPlan, AreWhatEveryRankUsesUnderEveryScheduleAndLayout) {
  const std::string pp = " --pipeline-model-parallel-size ", tp = " --tensor-model-parallel-size ";
  const std::string turns = " --num-virtual-stages-per-pipeline-rank ", kind = " --pipeline-schedule ";
  const std::string shards = " --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather";
  std::vector<Layout> layouts = {
      {pp + "2", 2},
      {pp + "3", 3},
      {pp + "2" + kind + "gpipe", 2},
      {pp + "2" + kind + "zb-h1", 2},
      {pp + "2" + kind + "zb-v", 2},
      {pp + "3" + kind + "zb-v", 3},
      {pp + "2" + turns + "2", 2},
      {pp + "2" + turns + "3", 2},
      {pp + "3" + turns + "2", 3},
      {pp + "2" + turns + "2" + shards, 4},
      {pp + "2" + kind + "zb-v" + tp + "2 --sequence-parallel", 4},
      {pp + "2" + tp + "2 --no-calculate-per-token-loss", 4},
      {tp + "2 --sequence-parallel --tp-comm-overlap", 2},
      {shards, 3},
      {shards + " --num-distributed-optimizer-instances 2", 4},
      {"", 2},
      {" --context-parallel-size 2", 4},
      {" --context-parallel-size 2 --cp-comm-type all_gather" + tp + "2 --sequence-parallel", 4},
      {" --context-parallel-size 2 --cp-comm-type a2a" + pp + "2", 4},
      {" --context-parallel-size 4 --cp-comm-type a2a+p2p --hierarchical-context-parallel-sizes 2 2", 4},
  };
  for (const std::string& words : gpu_layouts_of(8)) layouts.push_back({words, 8});
  for (const std::string& model : {gpt2_like(), llama_like()})
    for (const Layout& layout : layouts) {
      const PretrainConfig config = small_config(
          model + " --num-layers 12 --global-batch-size 24 --micro-batch-size 1" + layout.words, layout.num_ranks);
      const std::vector<Connections> used = connections_of_ranks(config, layout.num_ranks);
      int64_t num_streams = 0;
      for (int rank = 0; rank < layout.num_ranks; ++rank) {
        const Connections planned = planned_for(config, layout.num_ranks, rank);
        EXPECT_EQ(describe(planned), describe(used[static_cast<size_t>(rank)])) << layout.words << ", rank " << rank;
        num_streams = std::max(num_streams, num_streams_of(planned));
      }
      EXPECT_GE(most_streams_of(config), num_streams) << layout.words;
      EXPECT_LE(most_streams_of(config), num_streams + kUnusedStreams) << layout.words;
    }
}

/// Documents of 16, 8 and 4 tokens have four ranks, two and one.
TEST(StepPlan, OfHybridContextParallelismAreTheGroupsOfAllDocuments) {
  const std::string model =
      llama_like(" --micro-batch-size 1 --global-batch-size 8 --dataloader-inter-document-masking");
  for (const std::string words :
       {"", " --cp-comm-type all_gather", " --context-parallel-size 2", " --tensor-model-parallel-size 2"}) {
    const int num_ranks = words.find("tensor") != std::string::npos ? 8 : 4;
    const PretrainConfig config =
        small_config(model + " --hybrid-context-parallel --max-seqlen-per-dp-cp-rank 4" + words, num_ranks);
    const std::vector<Connections> used = connections_of_ranks(config, num_ranks, {{}, {8}, {4, 8, 12}});
    for (int rank = 0; rank < num_ranks; ++rank) {
      const Connections planned = planned_for(config, num_ranks, rank);
      EXPECT_EQ(describe(planned), describe(used[static_cast<size_t>(rank)])) << words << ", rank " << rank;
      EXPECT_GE(most_streams_of(config), num_streams_of(planned)) << words;
      EXPECT_LE(most_streams_of(config), num_streams_of(planned) + kUnusedStreams) << words;
    }
  }
}

TEST(StepPlan, OfTwoStagesAreAChannelEachWayAndTheGroupsThatShareNormAndLoss) {
  const PretrainConfig config = small_config(
      llama_like(" --num-layers 4 --global-batch-size 4 --micro-batch-size 1 --pipeline-model-parallel-size 2"), 2);
  for (const int rank : {0, 1})
    EXPECT_EQ(describe(planned_for(config, 2, rank)),
              "pp; pp 0 -> 1 by 0, 2048 bytes; pp 1 -> 0 by 1, 2048 bytes; world; ");
}

/// Channels outgrow everything else here: 32 is the most that a GPU can keep apart.
TEST(NumStreams, GrowByFourWithEachVirtualStage) {
  const auto most = [](int num_virtual_stages) {
    return most_streams_of(small_config(
        llama_like(fmt::format(" --num-layers 32 --global-batch-size 8 --micro-batch-size 1"
                               " --pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank {}",
                               num_virtual_stages)),
        2));
  };
  for (const int stages : {2, 4}) EXPECT_EQ(most(2 * stages), most(stages) + 4 * stages);
  EXPECT_LE(most(4), 32);
  EXPECT_GT(most(8), 32);
}

}  // namespace
}  // namespace megatron::testing
