#include "megatron/core/shard_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "megatron/core/random.h"

namespace megatron {
namespace {

using ::testing::HasSubstr;

/// All places of a grid.
std::vector<ShardPlace> places_of(int64_t tensor, int64_t expert = 1, int64_t expert_tensor = 1) {
  std::vector<ShardPlace> places;
  for (int64_t t = 0; t < tensor; ++t)
    for (int64_t e = 0; e < expert; ++e)
      for (int64_t et = 0; et < expert_tensor; ++et)
        places.push_back({.tensor = {t, tensor}, .expert = {e, expert}, .expert_tensor = {et, expert_tensor}});
  return places;
}

/// Each rank's boxes fill its shard, in order, and the boxes that have an owner make up the whole tensor.
void expect_tiled(const ShardSpec& spec, const std::vector<ShardPlace>& places) {
  std::vector<Box> owned;
  for (const ShardPlace& place : places) {
    std::vector<Box> local;
    for (const ShardBox& box : shard_boxes(spec, place)) {
      local.push_back(box.local());
      if (box.is_owner) owned.push_back(box.global);
    }
    EXPECT_EQ(tiling_problem(spec.local_shape(place), local), std::nullopt);
  }
  EXPECT_EQ(tiling_problem(spec.global_shape, owned), std::nullopt);
}

/// Cut number `test`: up to 6 groups of up to 4 sections, whose sizes divide by every number of ranks up to 12 but 11.
ShardCut random_cut(int64_t test) {
  const auto choose = [&](int64_t draw_number, int64_t below) {
    return static_cast<int64_t>(uniform(RandomKey::from_seed(5).at(test), draw_number) * static_cast<double>(below));
  };
  ShardCut cut{.num_groups = 1 + choose(0, 6)};
  const int64_t num_sections = 1 + choose(1, 4);
  for (int64_t s = 0; s < num_sections; ++s)
    cut.sections.push_back({2520 * (1 + choose(2 + 2 * s, 3)), choose(3 + 2 * s, 2) == 1});
  return cut;
}

bool can_be_cut(const ShardCut& cut, int64_t num_ranks) {
  return cut.num_groups % num_ranks == 0 || num_ranks % cut.num_groups == 0;
}

TEST(ShardBoxes, OfAnyCutTileTheWholeAndEachElementHasOneOwner) {
  int num_checked = 0;
  for (int64_t test = 0; test < 60; ++test) {
    const ShardCut cut = random_cut(test);
    for (const int64_t num_ranks : {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12}) {
      if (!can_be_cut(cut, num_ranks)) continue;
      ++num_checked;
      SCOPED_TRACE(fmt::format("cut {} over {} ranks", test, num_ranks));
      expect_tiled(ShardSpec::cut_by({cut.global_size(), 3}, cut), places_of(num_ranks));
    }
  }
  EXPECT_GT(num_checked, 200);
}

/// The dimensions of a weight [12 experts, rows, 12] with its cuts: by experts, by rows (a gated MLP has two sections,
/// a projection of queries groups of three), by columns, and the cuts in either order.
TEST(ShardBoxes, OfExpertsAndTheirDimensionsTileTheWholeInAnyGrid) {
  const ShardCut experts{.dim = 0, .axis = ShardAxis::kExpert, .sections = {{12}}};
  const ShardCut plain{.dim = 1, .axis = ShardAxis::kExpertTensor, .sections = {{24}}};
  const ShardCut gated{.dim = 1, .axis = ShardAxis::kExpertTensor, .sections = {{12}, {12}}};
  const ShardCut grouped{
      .dim = 1, .axis = ShardAxis::kExpertTensor, .num_groups = 2, .sections = {{12, false}, {2, true}, {2, true}}};
  const ShardCut columns{.dim = 2, .axis = ShardAxis::kExpertTensor, .sections = {{12}}};
  const std::vector<std::vector<ShardCut>> lists = {{},
                                                    {experts},
                                                    {plain},
                                                    {experts, plain},
                                                    {gated, experts},
                                                    {experts, gated},
                                                    {grouped, experts},
                                                    {experts, columns},
                                                    {columns, experts}};
  for (const std::vector<ShardCut>& cuts : lists)
    for (int64_t expert = 1; expert <= 4; ++expert)
      for (int64_t expert_tensor = 1; expert_tensor <= 4; ++expert_tensor) {
        ShardSpec spec{.global_shape = {12, 24, 12}, .cuts = cuts, .grid = ShardGrid::kExpert};
        for (const ShardCut& cut : cuts) spec.global_shape[cut.dim] = cut.global_size();
        if (std::ranges::any_of(
                cuts, [&](const ShardCut& cut) { return cut.num_groups > 1 && !can_be_cut(cut, expert_tensor); }))
          continue;
        SCOPED_TRACE(fmt::format("{} cuts, expert {} x expert tensor {}", cuts.size(), expert, expert_tensor));
        expect_tiled(spec, places_of(1, expert, expert_tensor));
      }
}

/// Ranks of the tensor axis hold dense parameters; where they stand in the expert grid changes nothing, and the other
/// way round.
TEST(ShardBoxes, DependOnTheAxesOfTheirOwnGridAlone) {
  ShardSpec dense = ShardSpec::cut_by({12, 5}, {.sections = {{12}}});
  const ShardPlace place{.tensor = {1, 2}, .expert = {2, 3}, .expert_tensor = {1, 4}};
  EXPECT_EQ(shard_boxes(dense, place), shard_boxes(dense, {.tensor = {1, 2}}));
  ShardSpec expert = dense;
  expert.grid = ShardGrid::kExpert;
  expert.cuts[0].axis = ShardAxis::kExpert;
  EXPECT_EQ(shard_boxes(expert, place), shard_boxes(expert, {.expert = {2, 3}, .expert_tensor = {1, 4}}));
  EXPECT_FALSE(shard_boxes(expert, place)[0].is_owner) << "expert tensor rank 0 has the same rows";
  EXPECT_TRUE(shard_boxes(dense, place)[0].is_owner);
}

/// Returns the shard as boxes of a vector.
std::vector<ShardBox> boxes_of(const ShardCut& cut, int64_t rank, int64_t num_ranks) {
  return shard_boxes(ShardSpec::cut_by({cut.global_size()}, cut), {.tensor = {rank, num_ranks}});
}

TEST(ShardBoxes, CutGateAndUpEachForItself) {
  const ShardCut cut{.sections = {{8, false}, {8, false}}};
  EXPECT_EQ(boxes_of(cut, 1, 2), (std::vector<ShardBox>{{{{4}, {4}}, {0}}, {{{12}, {4}}, {4}}}));
}

TEST(ShardBoxes, GiveRanksRunsOfWholeGroups) {
  const ShardCut cut{.num_groups = 4, .sections = {{6, false}, {2, true}, {2, true}}};
  EXPECT_EQ(boxes_of(cut, 1, 2), (std::vector<ShardBox>{{{{20}, {20}}, {0}}}));
}

TEST(ShardBoxes, RepeatKeysAndValuesWhereGroupsAreFewerThanRanks) {
  const ShardCut cut{.num_groups = 2, .sections = {{6, false}, {2, true}, {2, true}}};
  EXPECT_EQ(boxes_of(cut, 3, 4),
            (std::vector<ShardBox>{{{{13}, {3}}, {0}}, {{{16}, {2}}, {3}, false}, {{{18}, {2}}, {5}, false}}));
}

TEST(ShardBoxes, OfAWholeTensorBelongToTheFirstRank) {
  const ShardSpec spec = ShardSpec::whole({12, 5});
  for (const int64_t rank : {0, 1, 2}) {
    const std::vector<ShardBox> boxes = shard_boxes(spec, {.tensor = {rank, 3}});
    EXPECT_EQ(boxes, (std::vector<ShardBox>{{Box::whole({12, 5}), {0, 0}, rank == 0}}));
  }
}

TEST(ShardBoxes, OfAParameterOfOneExpertRankHaveTheirOwnerThere) {
  ShardSpec spec = ShardSpec::cut_by({12, 5}, {.axis = ShardAxis::kExpertTensor, .sections = {{12}}});
  spec.grid = ShardGrid::kExpert;
  const ShardPlace second{.expert = {1, 2}, .expert_tensor = {2, 3}};
  EXPECT_FALSE(shard_boxes(spec, second).at(0).is_owner) << "a copy of what expert rank 0 has";
  spec.is_of_one_expert_rank = true;
  EXPECT_TRUE(shard_boxes(spec, second).at(0).is_owner);
  spec.cuts.clear();
  EXPECT_FALSE(shard_boxes(spec, second).at(0).is_owner) << "a copy of what expert tensor rank 0 has";
}

template <class F>
std::string refusal_of(F&& f) {
  try {
    f();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(ShardBoxes, AreRefusedWhereTheyWouldNotTileTheWhole) {
  EXPECT_THROW(boxes_of({.num_groups = 4, .sections = {{6, false}}}, 0, 3), ConfigError);
  EXPECT_THROW(boxes_of({.sections = {{7, false}}}, 0, 2), ConfigError);
  const auto refusal = [](const ShardSpec& spec) { return refusal_of([&] { shard_boxes(spec, {}); }); };
  EXPECT_THAT(refusal(ShardSpec::cut_by({12}, {.sections = {{11}}})), HasSubstr("have 11 rows"));
  EXPECT_THAT(refusal(ShardSpec::cut_by({12}, {.dim = 1, .sections = {{12}}})), HasSubstr("dimension 1 of shape [12]"));
  EXPECT_THAT(refusal(ShardSpec::cut_by({12}, {.axis = ShardAxis::kExpert, .sections = {{12}}})),
              HasSubstr("an axis of the other grid"));
  ShardSpec diagonal = ShardSpec::cut_by({12, 12}, {.sections = {{12}}});
  diagonal.cuts.push_back({.dim = 1, .sections = {{12}}});
  EXPECT_THAT(refusal(diagonal), HasSubstr("a dimension and an axis of its own"));
}

TEST(ShardSpec, LocalShapeIsTheGlobalOneButForTheCuts) {
  ShardSpec spec = ShardSpec::whole({12, 5});
  const ShardPlace place{.tensor = {1, 3}};
  EXPECT_EQ(spec.local_shape(place), (Shape{12, 5}));
  spec = ShardSpec::cut_by({12, 5}, {.dim = 0, .sections = {{12, false}}});
  EXPECT_EQ(spec.local_shape(place), (Shape{4, 5}));
}

}  // namespace
}  // namespace megatron
