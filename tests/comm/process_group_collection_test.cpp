#include "megatron/comm/process_group_collection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "megatron/comm/meta/meta_world.h"
#include "tests/comm/buffers.h"
#include "tests/testing/rank_threads.h"

namespace megatron {
namespace {

using testing::RankContext;
using testing::run_ranks;
using testing::view_of;

std::vector<int> ranks_of(const ProcessGroup& group) {
  std::vector<int> ranks;
  for (int i = 0; i < group.size(); ++i) ranks.push_back(group.global_rank(i));
  return ranks;
}

TEST(ProcessGroupCollection, ASingleRankHasGroupsOfOne) {
  const auto groups = ProcessGroupCollection::single();
  EXPECT_EQ(groups.tp.size(), 1);
  EXPECT_EQ(groups.dp_cp.size(), 1);
  EXPECT_EQ(groups.expt_dp.size(), 1);
  EXPECT_EQ(groups.embd->size(), 1);
  EXPECT_TRUE(groups.pos_embd.has_value());
}

TEST(ProcessGroupCollection, HoldsTheGroupsOfTheRank) {
  const ParallelLayout layout({.world_size = 32,
                               .tensor_model_parallel_size = 2,
                               .pipeline_model_parallel_size = 4,
                               .context_parallel_size = 2,
                               .expert_model_parallel_size = 4,
                               .expert_tensor_parallel_size = 1,
                               .num_distributed_optimizer_instances = 2,
                               .hierarchical_context_parallel_sizes = {2, 1}});
  MetaWorld world(11, 32);  // tp 1, cp 1, dp 0, pp 1
  const auto groups = ProcessGroupCollection::make(world, layout);
  EXPECT_EQ(ranks_of(groups.tp), (std::vector{10, 11}));
  EXPECT_EQ(groups.tp.rank(), 1);
  EXPECT_EQ(ranks_of(groups.cp), (std::vector{9, 11}));
  EXPECT_EQ(ranks_of(groups.dp), (std::vector{11, 15}));
  EXPECT_EQ(ranks_of(groups.dp_cp), (std::vector{9, 11, 13, 15}));
  EXPECT_EQ(ranks_of(groups.intra_dp_cp), (std::vector{9, 11}));
  EXPECT_EQ(ranks_of(groups.pp), (std::vector{3, 11, 19, 27}));
  EXPECT_EQ(ranks_of(groups.ep), (std::vector{8, 9, 10, 11}));
  EXPECT_EQ(ranks_of(groups.expt_dp), (std::vector{11, 15}));
  EXPECT_EQ(ranks_of(groups.inter_dist_opt), (std::vector{11, 15}));
  EXPECT_EQ(groups.intra_dist_opt.size(), 16);
  EXPECT_EQ(groups.world.size(), 32);
  EXPECT_FALSE(groups.embd.has_value());  // neither first nor last stage
  EXPECT_FALSE(groups.pos_embd.has_value());
  ASSERT_EQ(groups.hcp.size(), 2u);
  EXPECT_EQ(groups.hcp[0].size(), 2);
  EXPECT_EQ(groups.hcp[1].size(), 1);
  EXPECT_EQ(groups.dp.name(), "dp");
}

TEST(ProcessGroupCollection, NumbersMembersInAscendingOrder) {
  const ParallelLayout layout({.world_size = 16,
                               .tensor_model_parallel_size = 2,
                               .pipeline_model_parallel_size = 2,
                               .context_parallel_size = 2,
                               .expert_model_parallel_size = 4,
                               .expert_tensor_parallel_size = 1});
  MetaWorld world(4, 16);
  const auto groups = ProcessGroupCollection::make(world, layout);
  EXPECT_EQ(groups.intra_dist_opt.rank(), 4);  // the list is 0 1 2 3 8 9 10 11 4 ...
}

TEST(ProcessGroupCollection, RejectsALayoutOfAnotherSize) {
  MetaWorld world(0, 4);
  EXPECT_THROW(ProcessGroupCollection::make(world, ParallelLayout({.world_size = 8})), ConfigError);
}

TEST(ProcessGroupCollection, EveryGroupOfEveryKindWorks) {
  const ParallelLayout layout({.world_size = 8,
                               .tensor_model_parallel_size = 2,
                               .pipeline_model_parallel_size = 2,
                               .context_parallel_size = 2,
                               .expert_model_parallel_size = 2,
                               .expert_tensor_parallel_size = 2,
                               .hierarchical_context_parallel_sizes = {2}});
  run_ranks(8, [&](RankContext& context) {
    const auto groups = ProcessGroupCollection::make(context.world, layout);
    std::vector<ProcessGroup> all{groups.world, groups.dp_cp,    groups.dp,      groups.cp,
                                  groups.mp,    groups.tp,       groups.pp,      groups.tp_dp_cp,
                                  groups.ep,    groups.tp_ep_pp, groups.expt_dp, groups.intra_dist_opt};
    all.push_back(groups.hcp.at(0));
    if (groups.embd) all.push_back(*groups.embd);
    if (groups.pos_embd) all.push_back(*groups.pos_embd);
    EXPECT_EQ(groups.pos_embd.has_value(), context.rank < 4);
    for (const ProcessGroup& group : all) {
      std::vector<int32_t> buffer{context.rank};
      group.all_reduce(view_of(buffer), ReduceOp::kSum, {"x"}).wait();
      int expected = 0;
      for (int rank : ranks_of(group)) expected += rank;
      EXPECT_EQ(buffer[0], expected) << group.name();
    }
  });
}

}  // namespace
}  // namespace megatron
