// Which rank stores what: all ranks together store each element once, whatever grid a parameter lives in.
#include "megatron/training/checkpoint/checkpoint_share.h"

#include <gtest/gtest.h>

#include <map>
#include <mutex>

#include "megatron/base/host_memory_files.h"
#include "megatron/dist_checkpointing/checkpoint_reader.h"
#include "tests/testing/rank_threads.h"
#include "tests/testing/test_device.h"

namespace megatron {
namespace {

using testing::RankContext;
using testing::run_ranks;
using testing::TestDevice;
using testing::values_of;

constexpr int64_t kNumLayers = 2;

/// A table of four experts, of which each rank of the expert axis has some, and a dense weight.
std::vector<ParameterOptions> parameters_of(const ProcessGroupCollection& groups) {
  return {{.name = "second_block.experts",
           .shard = {.global_shape = {4, 6},
                     .cuts = {{.dim = 0, .axis = ShardAxis::kExpert, .sections = {{4}}}},
                     .grid = ShardGrid::kExpert},
           .place = groups.shard_place(),
           .stored = {"decoder.layers.mlp.experts.weight", 1},
           .init_std = 1},
          {.name = "output.weight", .shard = ShardSpec::whole({5, 3}), .place = groups.shard_place(), .init_std = 1}};
}

/// Boxes by tensor, of all ranks.
using Stored = std::map<std::string, std::vector<Box>>;

Stored stored_by(const ParallelLayout& layout, bool deals) {
  Stored stored;
  std::mutex mutex;
  run_ranks(layout.sizes().world_size, [&](RankContext& rank) {
    const ProcessGroupCollection groups = ProcessGroupCollection::make(rank.world, layout);
    TestDevice device;
    const Context ctx = device.context();
    HostMemoryFiles files;
    files.create_directories("save");
    CheckpointWriter writer(files, "save", rank.rank);
    CheckpointShare share(writer, ctx, groups, deals);
    for (const ParameterOptions& options : parameters_of(groups)) {
      Parameter parameter(ctx, options);
      parameter.initialize(ctx);
      const CheckpointPlacement placement = placement_of(parameter, kNumLayers);
      share.add_replicated(parameter, placement, placement.key, stored_as_is("", parameter.value()));
    }
    const CheckpointMetadata metadata = writer.write(1);
    const std::lock_guard lock(mutex);
    for (const auto& [key, tensor] : metadata.tensors)
      for (const auto& chunk : tensor.chunks) stored[key].push_back(chunk.box);
  });
  return stored;
}

/// Ranks of one expert-parallel group hold different experts, though they are replicas of each other to dense weights.
TEST(CheckpointShare, StoresEveryExpertOnceWhateverReplicasDenseWeightsHave) {
  for (const bool deals : {true, false})
    for (const ParallelSizes& sizes :
         {ParallelSizes{.world_size = 2, .expert_model_parallel_size = 2},
          ParallelSizes{.world_size = 4, .expert_model_parallel_size = 2},
          ParallelSizes{.world_size = 4, .expert_model_parallel_size = 4},
          ParallelSizes{.world_size = 4, .tensor_model_parallel_size = 2, .expert_model_parallel_size = 2}}) {
      SCOPED_TRACE(fmt::format("{} ranks, tensor {}, expert {}, {}", sizes.world_size, sizes.tensor_model_parallel_size,
                               sizes.expert_model_parallel_size, deals ? "dealt" : "left to the first"));
      const Stored stored = stored_by(ParallelLayout(sizes), deals);
      std::vector<Box> layer_1 = stored.at("decoder.layers.mlp.experts.weight");
      layer_1.push_back({{0, 0, 0}, {1, 4, 6}});  // layer 0
      EXPECT_EQ(tiling_problem({kNumLayers, 4, 6}, layer_1), std::nullopt);
      EXPECT_EQ(tiling_problem({5, 3}, stored.at("output.weight")), std::nullopt);
    }
}

}  // namespace
}  // namespace megatron
