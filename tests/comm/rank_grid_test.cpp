#include "megatron/comm/rank_grid.h"
#include "tests/testing/source_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

namespace megatron {
namespace {

using enum GridAxis;
using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

json golden(const char* name) {
  return json::parse(std::ifstream(testing::golden_path("parallelism/" + std::string(name))));
}

TEST(RankGrid, FirstAxisVariesFastest) {
  const RankGrid grid({{kTensor, 2}, {kContext, 1}, {kData, 3}, {kPipeline, 2}}, 4);
  EXPECT_EQ(grid.num_ranks(), 12);
  EXPECT_EQ(grid.groups({kTensor})[1], (std::vector{6, 7}));
  EXPECT_EQ(grid.groups({kPipeline, kTensor})[0], (std::vector{4, 5, 10, 11}));
  EXPECT_EQ(grid.size(kData), 3);
  EXPECT_EQ(grid.size(kExpert), 1);
  EXPECT_EQ(grid.coordinate(4 + 9, kTensor), 1);
  EXPECT_EQ(grid.coordinate(4 + 9, kData), 1);
  EXPECT_EQ(grid.coordinate(4 + 9, kPipeline), 1);
  EXPECT_EQ(grid.coordinate(4 + 9, kExpert), 0);
}

TEST(RankGrid, GroupsOfAnyAxesPartitionTheRanks) {
  const RankGrid grid({{kPipeline, 2}, {kTensor, 3}, {kData, 2}, {kContext, 2}});
  for (auto axes : {std::initializer_list<GridAxis>{}, {kTensor}, {kPipeline, kContext}, {kTensor, kData, kContext}}) {
    std::vector<int> seen;
    for (const auto& ranks : grid.groups(axes)) seen.insert(seen.end(), ranks.begin(), ranks.end());
    std::sort(seen.begin(), seen.end());
    for (int rank = 0; rank < 24; ++rank) EXPECT_EQ(seen[static_cast<size_t>(rank)], rank);
  }
}

TEST(RankGrid, AgreesWithTheReferenceGrids) {
  const json cases = golden("groups.json")["grids"];
  EXPECT_FALSE(cases.empty());
  for (const auto& c : cases) {
    std::vector<RankGrid::Axis> axes;
    for (size_t i = 0; i < c["dims"].size(); ++i)
      axes.push_back({parse_order(c["dims"][i].get<std::string>())[0], c["shape"][i]});
    const RankGrid grid(axes, c["offset"]);
    for (const auto& question : c["enum"]) {
      std::vector<GridAxis> asked;
      for (const auto& dim : question[0]) asked.push_back(parse_order(dim.get<std::string>())[0]);
      EXPECT_EQ(grid.groups(asked), question[1].get<RankLists>()) << c;
    }
  }
}

TEST(RankGrid, AgreesWithTheReferenceRankGenerators) {
  const json cases = golden("groups.json")["rank_generator"];
  EXPECT_FALSE(cases.empty());
  for (const auto& c : cases) {
    std::vector<RankGrid::Axis> axes;
    for (GridAxis axis : parse_order(c["order"].get<std::string>())) axes.push_back({axis, c[name_of(axis)]});
    const RankGrid grid(axes, c["offset"]);
    for (const auto& [asked, groups] : c["groups"].items())
      EXPECT_EQ(grid.groups(parse_order(asked)), groups.get<RankLists>()) << c["order"] << asked;
  }
}

TEST(GridGroups, AgreeWithTheReferenceHierarchies) {
  const json cases = golden("groups.json")["hierarchical"];
  EXPECT_FALSE(cases.empty());
  for (const auto& c : cases)
    for (size_t level = 0; level < c["sizes"].size(); ++level) {
      std::vector<bool> is_member(c["sizes"].size());
      is_member[level] = true;
      RankLists groups = grid_groups(c["sizes"], is_member);
      for (auto& ranks : groups)
        for (int& rank : ranks) rank += c["ranks"][0].get<int>();
      EXPECT_EQ(groups, c["levels"][level].get<RankLists>()) << c["sizes"];
    }
}

TEST(RankGrid, RejectsBadAxes) {
  EXPECT_THROW(RankGrid({{kTensor, 2}, {kTensor, 2}}), ConfigError);
  EXPECT_THROW(RankGrid({{kTensor, 0}}), ConfigError);
  EXPECT_THAT([] { parse_order("tp-xp"); }, ThrowsMessage<ConfigError>(HasSubstr("\"xp\" in \"tp-xp\" is none of tp")));
  EXPECT_THAT([] { parse_order("tp-dp-tp"); }, ThrowsMessage<ConfigError>(HasSubstr("repeats tp")));
  EXPECT_THROW(parse_order("tp-"), ConfigError);
  EXPECT_THROW(parse_order(""), ConfigError);
  EXPECT_EQ(parse_order("PP-tp"), (std::vector{kPipeline, kTensor}));
}

}  // namespace
}  // namespace megatron
