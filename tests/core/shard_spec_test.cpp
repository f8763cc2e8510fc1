#include "megatron/core/shard_spec.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "megatron/core/random.h"

namespace megatron {
namespace {

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

/// How many ranks have each row of the whole dimension; checks that local ranges follow each other without gaps.
std::vector<int> owners_of_rows(const ShardCut& cut, int64_t num_ranks) {
  std::vector<int> owners(static_cast<size_t>(cut.global_size()));
  for (int64_t rank = 0; rank < num_ranks; ++rank) {
    int64_t local = 0;
    for (const ShardRange& range : local_ranges(cut, rank, num_ranks)) {
      EXPECT_EQ(range.local_begin, local);
      local += range.length;
      for (int64_t i = 0; i < range.length; ++i) ++owners.at(static_cast<size_t>(range.global_begin + i));
    }
    EXPECT_EQ(local, local_size(cut, num_ranks));
  }
  return owners;
}

TEST(ShardSpec, ShardsOfAnyGridRebuildTheWholeDimension) {
  int num_checked = 0;
  for (int64_t test = 0; test < 60; ++test) {
    const ShardCut cut = random_cut(test);
    for (const int64_t num_ranks : {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12}) {
      if (!can_be_cut(cut, num_ranks)) continue;
      ++num_checked;
      const std::vector<int> owners = owners_of_rows(cut, num_ranks);
      const int64_t sharers = std::max<int64_t>(1, num_ranks / cut.num_groups);
      size_t row = 0;
      for (int64_t g = 0; g < cut.num_groups; ++g)
        for (const ShardSection& section : cut.sections)
          for (int64_t i = 0; i < section.size; ++i, ++row)
            ASSERT_EQ(owners[row], section.replicated ? sharers : 1) << "row " << row << ", " << num_ranks << " ranks";
    }
  }
  EXPECT_GT(num_checked, 200);
}

TEST(ShardSpec, CutsGateAndUpEachForItself) {
  const ShardCut cut{.sections = {{8, false}, {8, false}}};
  EXPECT_EQ(local_ranges(cut, 1, 2), (std::vector<ShardRange>{{4, 0, 4}, {12, 4, 4}}));
}

TEST(ShardSpec, GivesRanksRunsOfWholeGroups) {
  const ShardCut cut{.num_groups = 4, .sections = {{6, false}, {2, true}, {2, true}}};
  EXPECT_EQ(local_ranges(cut, 1, 2), (std::vector<ShardRange>{{20, 0, 20}}));
}

TEST(ShardSpec, RepeatsKeysAndValuesWhereGroupsAreFewerThanRanks) {
  const ShardCut cut{.num_groups = 2, .sections = {{6, false}, {2, true}, {2, true}}};
  EXPECT_EQ(local_ranges(cut, 3, 4), (std::vector<ShardRange>{{13, 0, 3}, {16, 3, 2}, {18, 5, 2}}));
}

TEST(ShardSpec, TheLowestRankThatHasARowCountsItAndNoOther) {
  for (const ShardCut& cut : {ShardCut{.num_groups = 2, .sections = {{12, false}, {4, true}, {4, true}}},
                              ShardCut{.num_groups = 1, .sections = {{12, false}, {3, true}, {3, true}}},
                              ShardCut{.num_groups = 12, .sections = {{2, false}, {1, true}}},
                              ShardCut{.sections = {{12, false}, {24, false}}}})
    for (const int64_t num_ranks : {1, 2, 4, 6}) {
      std::vector<int64_t> counted_by(static_cast<size_t>(cut.global_size()), -1);
      for (int64_t rank = num_ranks - 1; rank >= 0; --rank)
        for (const ShardRange& range : local_ranges(cut, rank, num_ranks))
          std::fill_n(counted_by.begin() + range.global_begin, range.length, rank);
      for (int64_t rank = 0; rank < num_ranks; ++rank)
        for (const ShardRange& range : local_ranges(cut, rank, num_ranks))
          for (int64_t row = range.global_begin; row < range.global_begin + range.length; ++row)
            EXPECT_EQ(is_on_lower_rank(cut, range, rank, num_ranks), counted_by.at(static_cast<size_t>(row)) < rank)
                << "row " << row << " on rank " << rank << " of " << num_ranks;
    }
}

TEST(ShardSpec, RefusesWhatDoesNotDivide) {
  EXPECT_THROW(local_ranges({.num_groups = 4, .sections = {{6, false}}}, 0, 3), ConfigError);
  EXPECT_THROW(local_ranges({.sections = {{7, false}}}, 0, 2), ConfigError);
}

TEST(ShardSpec, LocalShapeIsTheGlobalOneButForTheCut) {
  ShardSpec spec = ShardSpec::whole({12, 5});
  EXPECT_EQ(spec.local_shape(3), (Shape{12, 5}));
  spec.cut = ShardCut{.dim = 0, .sections = {{12, false}}};
  EXPECT_EQ(spec.local_shape(3), (Shape{4, 5}));
}

}  // namespace
}  // namespace megatron
