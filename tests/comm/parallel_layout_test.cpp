#include "megatron/comm/parallel_layout.h"
#include "tests/testing/source_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

namespace megatron {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

ParallelSizes sizes_of(const json& c) {
  ParallelSizes sizes{.world_size = c["world"],
                      .tensor_model_parallel_size = c["tp"],
                      .pipeline_model_parallel_size = c["pp"],
                      .context_parallel_size = c["cp"],
                      .expert_model_parallel_size = c["ep"],
                      .num_distributed_optimizer_instances = c.value("instances", 1),
                      .hierarchical_context_parallel_sizes = c.value("hier", std::vector<int>()),
                      .hybrid_context_parallel = c.value("hybrid", false),
                      .order = c["order"]};
  if (!c["etp"].is_null()) sizes.expert_tensor_parallel_size = c["etp"];
  if (c.contains("vpp")) sizes.virtual_pipeline_model_parallel_size = c["vpp"];
  return sizes;
}

/// The reference's names where ours are Megatron Core's ProcessGroupCollection.
constexpr std::pair<const char*, GroupKind> kKinds[] = {{"dp_cp", GroupKind::kDpCp},
                                                        {"intra_dp_cp", GroupKind::kIntraDpCp},
                                                        {"dp", GroupKind::kDp},
                                                        {"cp", GroupKind::kCp},
                                                        {"mp", GroupKind::kMp},
                                                        {"tp", GroupKind::kTp},
                                                        {"pp", GroupKind::kPp},
                                                        {"embd", GroupKind::kEmbd},
                                                        {"pos_embd", GroupKind::kPosEmbd},
                                                        {"tp_dp_cp", GroupKind::kTpDpCp},
                                                        {"tp_dp", GroupKind::kTpDp},
                                                        {"tp_cp", GroupKind::kTpCp},
                                                        {"ep", GroupKind::kEp},
                                                        {"etp", GroupKind::kExptTp},
                                                        {"etp_ep", GroupKind::kTpEp},
                                                        {"etp_ep_pp", GroupKind::kTpEpPp},
                                                        {"edp", GroupKind::kExptDp},
                                                        {"intra_edp", GroupKind::kIntraExptDp},
                                                        {"inter_edp", GroupKind::kInterDistOpt},
                                                        {"dist_opt_instance", GroupKind::kIntraDistOpt}};

TEST(ParallelLayout, AgreesWithTheReferenceOnAllLayouts) {
  const json cases = json::parse(std::ifstream(testing::golden_path("parallelism/groups.json")))["layouts"];
  int num_accepted = 0, num_refused = 0;
  for (const auto& c : cases) {
    const ParallelSizes sizes = sizes_of(c);
    // Megatron has hybrid groups for even numbers of ranks alone.
    if (c.contains("error") && !sizes.hybrid_context_parallel) {
      EXPECT_THROW(ParallelLayout{sizes}, ConfigError) << c;
      ++num_refused;
      continue;
    }
    const ParallelLayout layout(sizes);
    if (c.contains("error")) continue;
    size_t num_compared = 0;
    for (const auto& [name, kind] : kKinds)
      if (c["groups"].contains(name)) {
        EXPECT_EQ(layout.groups(kind), c["groups"][name].get<RankLists>()) << name << " of " << sizes.world_size;
        ++num_compared;
      }
    const auto levels = layout.hierarchical_cp_groups();
    for (size_t level = 0; level < levels.size(); ++level, ++num_compared)
      EXPECT_EQ(levels[level], c["groups"].at("hcp" + std::to_string(level)).get<RankLists>());
    for (const RankLists& runs : layout.hybrid_dp_cp_groups()) {
      const std::string name = "hybrid" + std::to_string(runs[0].size());
      if (!c["groups"].contains(name)) {  // of more than half of a number of ranks that is no power of two
        EXPECT_EQ(sizes.world_size, 12) << name;
        EXPECT_EQ(name, "hybrid8");
        continue;
      }
      EXPECT_EQ(runs, c["groups"][name].get<RankLists>());
      ++num_compared;
    }
    EXPECT_EQ(num_compared, c["groups"].size());
    ++num_accepted;
  }
  EXPECT_GT(num_accepted, 0);
  EXPECT_GT(num_refused, 0);
}

TEST(ParallelLayout, FoldsExpertsOverTensorAndContextRanks) {
  const ParallelLayout layout({.world_size = 16,
                               .tensor_model_parallel_size = 2,
                               .pipeline_model_parallel_size = 2,
                               .context_parallel_size = 2,
                               .expert_model_parallel_size = 4,
                               .expert_tensor_parallel_size = 1,
                               .num_distributed_optimizer_instances = 2});
  EXPECT_EQ(layout.dense().size(GridAxis::kData), 2);
  EXPECT_EQ(layout.expert().size(GridAxis::kData), 2);
  EXPECT_EQ(layout.groups(GroupKind::kTp)[1], (std::vector{2, 3}));
  EXPECT_EQ(layout.groups(GroupKind::kCp)[4], (std::vector{8, 10}));
  EXPECT_EQ(layout.groups(GroupKind::kDpCp)[1], (std::vector{1, 3, 5, 7}));
  EXPECT_EQ(layout.groups(GroupKind::kEp)[0], (std::vector{0, 1, 2, 3}));
  EXPECT_EQ(layout.groups(GroupKind::kTpEpPp)[1], (std::vector{4, 5, 6, 7, 12, 13, 14, 15}));
  EXPECT_EQ(layout.groups(GroupKind::kIntraDpCp)[1], (std::vector{4, 6}));
  EXPECT_EQ(layout.groups(GroupKind::kInterDistOpt)[0], (std::vector{0, 4}));
  EXPECT_EQ(layout.groups(GroupKind::kIntraDistOpt)[0], (std::vector{0, 1, 2, 3, 8, 9, 10, 11}));
}

TEST(ParallelLayout, OneOptimizerInstanceHasTheWholeGroups) {
  const ParallelLayout layout({.world_size = 8, .tensor_model_parallel_size = 2});
  EXPECT_EQ(layout.groups(GroupKind::kIntraDpCp), layout.groups(GroupKind::kDpCp));
  EXPECT_EQ(layout.groups(GroupKind::kIntraExptDp), layout.groups(GroupKind::kExptDp));
  EXPECT_EQ(layout.groups(GroupKind::kInterDistOpt).size(), 8u);
}

TEST(ParallelLayout, EmbeddingGroupsHaveTheFirstAndTheLastStageOrThoseThatAreNamed) {
  ParallelSizes sizes{.world_size = 8, .pipeline_model_parallel_size = 4};
  EXPECT_EQ(ParallelLayout(sizes).groups(GroupKind::kEmbd), (RankLists{{0, 6}, {1, 7}}));
  sizes.embedding_ranks = {0, 2, 3};
  EXPECT_EQ(ParallelLayout(sizes).groups(GroupKind::kEmbd), (RankLists{{0, 4, 6}, {1, 5, 7}}));
  sizes.embedding_ranks = {0, 4};
  EXPECT_THROW(ParallelLayout{sizes}, ConfigError);
}

TEST(ParallelLayout, HybridGroupsOfAnyNumberOfRanksAreRunsOfPowersOfTwo) {
  const auto runs_of = [](int num_ranks) {
    return ParallelLayout({.world_size = num_ranks, .hybrid_context_parallel = true}).hybrid_dp_cp_groups();
  };
  EXPECT_EQ(runs_of(3), (std::vector<RankLists>{{{0, 1}, {2}}}));
  EXPECT_EQ(runs_of(6), (std::vector<RankLists>{{{0, 1}, {2, 3}, {4, 5}}, {{0, 1, 2, 3}, {4, 5}}}));
}

TEST(ParallelLayout, ReportsAllMistakesWithTheirValues) {
  const ParallelSizes sizes{.world_size = 10,
                            .tensor_model_parallel_size = 4,
                            .context_parallel_size = 2,
                            .expert_model_parallel_size = 3,
                            .virtual_pipeline_model_parallel_size = 2,
                            .hierarchical_context_parallel_sizes = {2, 4}};
  EXPECT_THAT([&] { ParallelLayout{sizes}; },
              ThrowsMessage<ConfigError>(
                  AllOf(HasSubstr("world_size 10 is not divisible by tensor 4 x pipeline 1 x context 2 = 8"),
                        HasSubstr("world_size 10 is not divisible by expert tensor 4 x expert 3 x pipeline 1 = 12"),
                        HasSubstr("virtual_pipeline_model_parallel_size 2 needs pipeline_model_parallel_size"),
                        HasSubstr("hierarchical_context_parallel_sizes 2x4 have the product 8"))));
  EXPECT_THAT([] { ParallelLayout({.world_size = 8, .tensor_model_parallel_size = 2, .order = "dp-pp"}); },
              ThrowsMessage<ConfigError>(HasSubstr("leaves out tp, whose size in the dense grid is 2")));
  EXPECT_THROW(ParallelLayout({.world_size = 8, .tensor_model_parallel_size = 0}), ConfigError);
}

}  // namespace
}  // namespace megatron
