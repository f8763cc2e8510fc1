// Which ranks hold the same shard, in grids of every shape.
#include "megatron/distributed/replica_groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "megatron/distributed/distributed_data_parallel.h"
#include "tests/testing/rank_threads.h"
#include "tests/testing/test_device.h"

namespace megatron::testing {
namespace {

/// The group of `rank` among those of a kind, in ascending order.
std::vector<int> group_of(const ParallelLayout& layout, GroupKind kind, int rank) {
  for (std::vector<int> ranks : layout.groups(kind)) {
    std::ranges::sort(ranks);
    if (std::ranges::find(ranks, rank) != ranks.end()) return ranks;
  }
  return {};
}

ShardPlace::Coordinate coordinate(const ParallelLayout& layout, GroupKind kind, int rank) {
  const std::vector<int> ranks = group_of(layout, kind, rank);
  return {std::ranges::find(ranks, rank) - ranks.begin(), std::ssize(ranks)};
}

ShardPlace place_of(const ParallelLayout& layout, int rank) {
  return {.tensor = coordinate(layout, GroupKind::kTp, rank),
          .expert = coordinate(layout, GroupKind::kEp, rank),
          .expert_tensor = coordinate(layout, GroupKind::kExptTp, rank)};
}

/// Expects that in each pipeline stage the first replicas own each element once, and that replicas hold the same.
void expect_one_owner(const ParallelLayout& layout, const ShardSpec& spec, GroupKind replicas) {
  std::map<int64_t, std::vector<Box>> owned;  // by pipeline stage
  for (int rank = 0; rank < layout.sizes().world_size; ++rank) {
    const std::vector<ShardBox> boxes = shard_boxes(spec, place_of(layout, rank));
    const std::vector<int> same = group_of(layout, replicas, rank);
    EXPECT_EQ(boxes, shard_boxes(spec, place_of(layout, same.front()))) << "ranks " << rank << ", " << same.front();
    std::vector<Box>& of_stage = owned[coordinate(layout, GroupKind::kPp, rank).rank];
    for (const ShardBox& box : boxes)
      if (rank == same.front() && box.is_owner) of_stage.push_back(box.global);
  }
  for (const auto& [stage, boxes] : owned)
    EXPECT_EQ(tiling_problem(spec.global_shape, boxes), std::nullopt) << "stage " << stage;
}

TEST(ReplicaGroups, TogetherWithBoxesGiveEachElementOneOwnerInAnyGridAndOrder) {
  const ShardSpec dense = ShardSpec::cut_by({12, 5}, {.sections = {{12}}});
  ShardSpec expert{.global_shape = {12, 24, 2},
                   .cuts = {{.dim = 1, .axis = ShardAxis::kExpertTensor, .sections = {{12}, {12}}},
                            {.dim = 0, .axis = ShardAxis::kExpert, .sections = {{12}}}},
                   .grid = ShardGrid::kExpert};
  int num_checked = 0;
  for (const char* order : {"tp-cp-ep-dp-pp", "tp-ep-dp-cp-pp", "ep-dp-tp-cp-pp", "dp-tp-ep-cp-pp", "tp-cp-ep-pp-dp"})
    for (const int tp : {1, 2, 3, 4})
      for (const int etp : {1, 2, 3})
        for (const int ep : {1, 2, 3, 4})
          for (const int pp : {1, 2}) {
            ParallelSizes sizes{.world_size = std::lcm(tp, etp * ep) * 2 * pp,
                                .tensor_model_parallel_size = tp,
                                .pipeline_model_parallel_size = pp,
                                .expert_model_parallel_size = ep,
                                .expert_tensor_parallel_size = etp};
            sizes.order = order;
            SCOPED_TRACE(fmt::format("{}: tp {} etp {} ep {} pp {}", order, tp, etp, ep, pp));
            try {
              const ParallelLayout layout(sizes);
              expect_one_owner(layout, dense, GroupKind::kDpCp);
              expect_one_owner(layout, expert, GroupKind::kExptDp);
              ++num_checked;
            } catch (const ConfigError&) {  // an order that does not fit both grids
            }
          }
  EXPECT_GT(num_checked, 300);
}

ParameterOptions expert_weight(const ProcessGroupCollection& groups) {
  return {.name = "experts.weight",
          .shard = {.global_shape = {4, 6},
                    .cuts = {{.dim = 0, .axis = ShardAxis::kExpert, .sections = {{4}}}},
                    .grid = ShardGrid::kExpert},
          .place = groups.shard_place()};
}

TEST(ReplicaGroups, OfExpertsAreTheRanksWithTheSameExperts) {
  const ParallelLayout layout({.world_size = 4, .expert_model_parallel_size = 2});
  run_ranks(4, [&](RankContext& rank) {
    const ProcessGroupCollection groups = ProcessGroupCollection::make(rank.world, layout);
    TestDevice device;
    const Context ctx = device.context();
    const Parameter expert(ctx, expert_weight(groups));
    const Parameter dense(ctx, {.name = "w", .shard = ShardSpec::whole({3})});
    EXPECT_EQ(replicas_of(dense, groups).all.size(), 4);
    const ProcessGroup replicas = replicas_of(expert, groups).all;
    ASSERT_EQ(replicas.size(), 2);
    EXPECT_EQ(replicas.global_rank(1) - replicas.global_rank(0), 2) << "neighbours have other experts";
  });
}

TEST(DistributedDataParallel, RefusesAParameterThatWasMadeForAnotherPlace) {
  run_ranks(2, [](RankContext& rank) {
    TestDevice device;
    const Context ctx = device.context();
    ProcessGroupCollection groups;
    groups.tp = rank.group;
    Parameter norm(ctx, {.name = "norm.weight", .shard = ShardSpec::whole({3})});
    try {
      DistributedDataParallel ddp(ctx, {{&norm}}, groups, {});
      ADD_FAILURE() << "both ranks would count it in the norm";
    } catch (const InternalError& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr("norm.weight was made for tensor rank 0 of 1"));
    }
  });
}

}  // namespace
}  // namespace megatron::testing
