#include "megatron/pipeline_parallel/pipeline_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "megatron/pipeline_parallel/layout_string.h"
#include "tests/testing/golden_json.h"

namespace megatron {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using testing::golden_json;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

std::optional<int64_t> optional_at(const json& c, const char* key) {
  return c.contains(key) && !c[key].is_null() ? std::optional<int64_t>(c[key].get<int64_t>()) : std::nullopt;
}

LayerSplit split_of(const json& c) {
  return {.num_layers = c["layers"],
          .placement = {c["pp"].get<int>(), c.value("vpp", 1)},
          .first_rank_layers = optional_at(c, "first"),
          .last_rank_layers = optional_at(c, "last"),
          .account_for_embedding = c.value("embedding", false),
          .account_for_loss = c.value("loss", false)};
}

/// [layers, offset] of each (rank, chunk), as the golden files have them.
json counts_of(const PipelineLayout& layout) {
  json ranks = json::array();
  for (int r = 0; r < layout.placement().num_ranks(); ++r) {
    ranks.push_back(json::array());
    for (int c = 0; c < layout.placement().num_chunks(); ++c) {
      const StageLayers& stage = layout.at({.rank = r, .chunk = c});
      ranks.back().push_back({stage.num_layers, stage.first_layer});
    }
  }
  return ranks;
}

TEST(PipelineLayout, SplitsLayersLikeTheReference) {
  const json cases = golden_json("parallelism/layers.json", "stages");
  ASSERT_FALSE(cases.empty());
  for (const json& c : cases) {
    if (c.contains("error"))
      EXPECT_THROW(split_layers(split_of(c)), ConfigError) << c;
    else
      EXPECT_EQ(counts_of(split_layers(split_of(c))), c["stages"]) << c;
  }
}

LayoutStringOptions options_of(const json& c) {
  return {.num_ranks = c["pp"], .num_layers = c["layers"], .num_mtp_layers = optional_at(c, "mtp").value_or(0)};
}

TEST(LayoutString, ReadsLikeTheReference) {
  const json cases = golden_json("parallelism/layers.json", "layouts");
  ASSERT_FALSE(cases.empty());
  int num_departures = 0;
  for (const json& c : cases) {
    const std::string text = c["layout"];
    // Megatron takes a loss before the last stage, and builds it on the last one anyway: rejected here.
    const bool departs = !c.contains("error") && text.back() == '|';
    num_departures += departs ? 1 : 0;
    if (c.contains("error") || departs) {
      EXPECT_THROW(parse_layout(text, options_of(c)), ConfigError) << c;
      continue;
    }
    const PipelineLayout layout = parse_layout(text, options_of(c));
    EXPECT_EQ(layout.placement().num_chunks(), c["vpp"]) << c;
    for (int r = 0; r < layout.placement().num_ranks(); ++r)
      for (int k = 0; k < layout.placement().num_chunks(); ++k) {
        const StageLayers& stage = layout.at({.rank = r, .chunk = k});
        const json& expected = c["stages"][static_cast<size_t>(r)][static_cast<size_t>(k)];
        const std::string symbols = (stage.has_embedding ? "E" : "") + std::string(stage.num_layers, 't') +
                                    std::string(stage.num_mtp_layers, 'm') + (stage.has_head ? "L" : "");
        EXPECT_EQ(symbols, expected[0]) << c;
        EXPECT_EQ(stage.num_layers, expected[1]) << c;
        EXPECT_EQ(stage.first_layer, expected[2]) << c;
      }
    EXPECT_EQ(parse_layout(to_string(layout), options_of(c)), layout) << "written and read again: " << c;
  }
  EXPECT_GT(num_departures, 0);
}

TEST(PipelineLayout, EmbeddingAndHeadAreAtTheEndsOfTheStagesNotOfTheRanks) {
  const PipelineLayout loop = split_layers({.num_layers = 8, .placement = {2, 2}});
  EXPECT_TRUE(loop.at({.rank = 0, .chunk = 0}).has_embedding);
  EXPECT_TRUE(loop.at({.rank = 1, .chunk = 1}).has_head);
  const PipelineLayout v = split_layers({.num_layers = 8, .placement = {2, 2, StageOrder::kV}});
  EXPECT_TRUE(v.at({.rank = 0, .chunk = 0}).has_embedding);
  EXPECT_TRUE(v.at({.rank = 0, .chunk = 1}).has_head);
  EXPECT_EQ(v.at({.rank = 0, .chunk = 1}).first_layer, 6);
  EXPECT_EQ(v.at({.rank = 1, .chunk = 1}).first_layer, 4);
  for (const PipelineLayout& layout : {loop, v}) {
    const auto count = [&](auto member) { return std::ranges::count(layout.stages(), true, member); };
    EXPECT_EQ(count(&StageLayers::has_embedding), 1);
    EXPECT_EQ(count(&StageLayers::has_head), 1);
    EXPECT_EQ(layout.num_layers(), 8);
  }
}

TEST(PipelineLayout, WordEmbeddingsAreHeldByEveryRankThatEmbedsTokensOrSharesTheTable) {
  PipelineLayout layout({4, 1}, {2, 2, 2, 2});
  EXPECT_EQ(layout.word_embeddings(false), (TieGroup{"word_embeddings", {0}}));
  EXPECT_EQ(layout.word_embeddings(true), (TieGroup{"word_embeddings", {0, 3}}));
  layout.set_mtp_layers(2, 1);
  EXPECT_EQ(layout.word_embeddings(false), (TieGroup{"word_embeddings", {0, 2}}));
  const TieGroup three = layout.word_embeddings(true);
  EXPECT_EQ(three, (TieGroup{"word_embeddings", {0, 2, 3}}));
  EXPECT_TRUE(three.copy_of(0).is_first());
  EXPECT_EQ(three.copy_of(3).holder, 2);
  EXPECT_EQ(three.copy_of(3).num_holders, 3);
  EXPECT_EQ(three.copy_of(1).num_holders, 1) << "rank 1 holds none";
  const PipelineLayout folded({2, 2, StageOrder::kV}, {1, 1, 1, 1});
  EXPECT_EQ(folded.word_embeddings(true), (TieGroup{"word_embeddings", {0}})) << "both ends are on one rank";
}

TEST(PipelineLayout, AllMistakesOfASplitAreReportedTogether) {
  EXPECT_THAT(
      [] {
        split_layers({.num_layers = 10, .placement = {4, 1}});
      },
      ThrowsMessage<ConfigError>(AllOf(HasSubstr("--num-layers 12"), HasSubstr("do not divide"))));
  EXPECT_THAT(
      [] {
        split_layers({.num_layers = 0,
                      .placement = {2, 2},
                      .first_rank_layers = 3,
                      .last_rank_layers = 5,
                      .account_for_loss = true});
      },
      ThrowsMessage<ConfigError>(
          AllOf(HasSubstr("4 mistakes"), HasSubstr("3 does not divide"), HasSubstr("5 does not divide"))));
}

TEST(LayoutString, ErrorsNameTheMistake) {
  const auto refused = [](const char* text, const char* reason) {
    EXPECT_THAT([&] { parse_layout(text, {.num_ranks = 2, .num_layers = 4}); },
                ThrowsMessage<ConfigError>(HasSubstr(reason)))
        << text;
  };
  refused("Ett|ttx", "'x' means nothing");
  refused("Ett|ttx", "must end with L");
  refused("Ett|t|tL", "3 stages, which do not divide");
  refused("Ett|tttL", "has 5 't', but --num-layers is 4");
  refused("Ett|ttLL", "has 2 'L'");
  refused("|Ett|tt|L", "must begin with E");
  refused("Et*99999999999999999999|L", "more than 1000000 characters");
  refused("E((t)*2|)*2L", "without nesting");
}

/// Largest cost of a rank when stage s has counts[s] layers.
double slowest_rank(const std::vector<int64_t>& counts, const StagePlacement& placement, const LayerCosts& costs) {
  std::vector<double> ranks(static_cast<size_t>(placement.num_ranks()));
  const int last = placement.num_stages() - 1;
  for (int s = 0; s <= last; ++s)
    ranks[static_cast<size_t>(placement.place_of(s).rank)] +=
        costs.layer * static_cast<double>(counts[static_cast<size_t>(s)]) + (s == 0 ? costs.embedding : 0) +
        (s == last ? costs.head : 0);
  return *std::ranges::max_element(ranks);
}

/// The least that any distribution reaches, by trying all.
double least_possible(std::vector<int64_t>& counts, size_t stage, int64_t left, const StagePlacement& placement,
                      const LayerCosts& costs) {
  if (stage + 1 == counts.size()) {
    counts[stage] = left;
    return slowest_rank(counts, placement, costs);
  }
  double least = 1e300;
  for (counts[stage] = 0; counts[stage] <= left; ++counts[stage])
    least = std::min(least, least_possible(counts, stage + 1, left - counts[stage], placement, costs));
  return least;
}

TEST(PipelineLayout, BalancedLayoutsReachTheLeastPossibleLargestRank) {
  for (const LayerCosts costs : {LayerCosts{}, LayerCosts{.embedding = 0.1, .layer = 1, .head = 1.7},
                                 LayerCosts{.embedding = 3, .layer = 0.5, .head = 2.2}})
    for (const StagePlacement placement :
         {StagePlacement(1, 1), StagePlacement(3, 1), StagePlacement(2, 2), StagePlacement(2, 2, StageOrder::kV)})
      for (int64_t layers : {0, 1, 5, 7, 11}) {
        const PipelineLayout layout = balanced_layout(layers, placement, costs);
        EXPECT_EQ(layout.num_layers(), layers);
        std::vector<int64_t> counts;
        for (const StageLayers& stage : layout.stages()) counts.push_back(stage.num_layers);
        std::vector<int64_t> any(counts.size());
        EXPECT_NEAR(slowest_rank(counts, placement, costs), least_possible(any, 0, layers, placement, costs), 1e-9)
            << to_string(layout);
      }
}

TEST(PipelineLayout, BalancedLayoutsOf43LayersDifferByOneLayerAtMost) {
  const PipelineLayout layout = balanced_layout(43, {3, 2}, {});
  const auto [least, most] = std::ranges::minmax(layout.stages(), {}, &StageLayers::num_layers);
  EXPECT_EQ(least.num_layers, 7);
  EXPECT_EQ(most.num_layers, 8);
  EXPECT_EQ(to_string(layout), "Et*7|t*7|t*7|t*7|t*7|t*8L") << "the odd layer is where fewest activations wait";
  EXPECT_EQ(to_string(balanced_layout(43, {4, 1}, {.embedding = 0.2, .layer = 1, .head = 3})), "Et*11|t*11|t*12|t*9L");
}

}  // namespace
}  // namespace megatron
