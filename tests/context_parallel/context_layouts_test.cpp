// Which tokens a context-parallel rank holds, and which keys its queries see in each call of attention.
#include "megatron/core/context_layouts.h"

#include <gtest/gtest.h>

#include <set>

#include "tests/testing/golden_json.h"
#include "tests/testing/test_device.h"

namespace megatron::testing {
namespace {

std::vector<int64_t> positions_of(const std::vector<PositionRange>& runs) {
  std::vector<int64_t> positions;
  for (const PositionRange& run : runs)
    for (int64_t position = run.begin; position < run.end; ++position) positions.push_back(position);
  return positions;
}
std::vector<int64_t> positions_of(const ContextCut& cut, const std::vector<int32_t>& cuts = {}) {
  return positions_of(cut.runs_of(cut.units_of(cuts)));
}

TEST(ContextCut, HoldsThePositionsOfMegatron) {
  for (const nlohmann::json& example : golden_json("parallelism/context.json", "zigzag")) {
    const int64_t length = example["s"], size = example["cp"];
    for (int64_t rank = 0; rank < size; ++rank) {
      const ContextCut cut{.rank = rank, .size = size, .length = length};
      if (example.contains("error")) {
        EXPECT_THROW(cut.check(), ShapeError) << example;
        continue;
      }
      cut.check();
      EXPECT_EQ(positions_of(cut), example["ranks"][static_cast<size_t>(rank)].get<std::vector<int64_t>>()) << example;
    }
  }
}

TEST(ContextCut, HoldsThePositionsOfMegatronOfPackedDocuments) {
  for (const nlohmann::json& example : golden_json("parallelism/context.json", "documents")) {
    const int64_t size = example["cp"];
    std::vector<int32_t> cuts;  // and the length of the sample behind them
    for (const int32_t length : example["padded_lengths"]) cuts.push_back(length + (cuts.empty() ? 0 : cuts.back()));
    const int64_t length = cuts.back();
    cuts.pop_back();
    for (int64_t rank = 0; rank < size; ++rank) {
      std::vector<int64_t> expected;
      for (size_t document = 0; document <= cuts.size(); ++document)
        for (const int64_t position : example["positions"][static_cast<size_t>(rank)][document])
          expected.push_back(position + (document == 0 ? 0 : cuts[document - 1]));
      EXPECT_EQ(positions_of({.rank = rank, .size = size, .length = length}, cuts), expected) << example;
    }
  }
}

TEST(ContextCut, CutsTheWholeSampleWhereADocumentDoesNotDivide) {
  const ContextCut cut{.rank = 0, .size = 2, .length = 24};
  EXPECT_EQ(positions_of(cut, {8, 18}), positions_of(cut));
  EXPECT_NE(positions_of(cut, {8, 16}), positions_of(cut));
}

TEST(ContextCut, OrdersChunksOfAllRanksAsMegatron) {
  for (const nlohmann::json& example : golden_json("parallelism/context.json", "chunk_order")) {
    const int64_t size = example["cp"];
    std::vector<int64_t> gathered;  // numbers of the chunks in the order of the ranks
    for (int64_t rank = 0; rank < size; ++rank)
      for (const int64_t chunk : ContextCut{.rank = rank, .size = size, .length = 2 * size}.chunks())
        gathered.push_back(chunk);
    EXPECT_EQ(gathered, example["redo"].get<std::vector<int64_t>>());
    const auto undo = example["undo"].get<std::vector<int64_t>>();
    for (size_t chunk = 0; chunk < undo.size(); ++chunk)
      EXPECT_EQ(gathered[static_cast<size_t>(undo[chunk])], static_cast<int64_t>(chunk));
  }
}

TEST(ContextCut, EveryRankHasAsManyVisiblePairs) {
  for (const std::vector<int32_t>& cuts : std::vector<std::vector<int32_t>>{{}, {24, 72}})
    for (const int64_t size : {2, 3, 4}) {
      std::set<int64_t> numbers;
      for (int64_t rank = 0; rank < size; ++rank) {
        int64_t pairs = 0;
        for (const int64_t position : positions_of({.rank = rank, .size = size, .length = 96}, cuts)) {
          const auto next = std::ranges::upper_bound(cuts, position);
          pairs += position + 1 - (next == cuts.begin() ? 0 : *std::prev(next));
        }
        numbers.insert(pairs);
      }
      EXPECT_EQ(numbers.size(), 1U) << size;
    }
}

using Pair = std::array<int64_t, 3>;  // column, positions of query and key

/// Pairs that causal attention sees through the spans, which must not see one twice.
void add_pairs(const SequenceLayout& layout, const std::vector<std::vector<int64_t>>& queries,
               const std::vector<std::vector<int64_t>>& keys, std::multiset<Pair>& pairs) {
  const SequenceLayoutView view = layout.view();
  for (int64_t i = 0; i < view.num_spans; ++i) {
    const SequenceSpan& span = view.spans[i];
    const auto column = static_cast<size_t>(span.batch);
    for (int64_t q = 0; q < span.query_length; ++q)
      for (int64_t k = 0; k < std::min<int64_t>(span.key_length, span.query_offset + q + 1); ++k)
        pairs.insert({span.batch, queries[column].at(static_cast<size_t>(span.query_begin + q)),
                      keys[column].at(static_cast<size_t>(span.key_begin + k))});
  }
}

/// Those of documents on one rank.
std::multiset<Pair> pairs_of(const std::vector<std::vector<int32_t>>& cuts, int64_t length) {
  std::multiset<Pair> pairs;
  for (size_t column = 0; column < cuts.size(); ++column)
    for (int64_t query = 0, begin = 0; query < length; ++query) {
      if (std::ranges::count(cuts[column], query) > 0) begin = query;
      for (int64_t key = begin; key <= query; ++key) pairs.insert({static_cast<int64_t>(column), query, key});
    }
  return pairs;
}

void expect_each_pair_once(const std::vector<std::vector<int32_t>>& cuts, int64_t size, bool splits_keys) {
  constexpr int64_t kLength = 24;
  const SequenceTable table{.b = std::ssize(cuts), .first_sample = 0, .cuts = cuts, .positions = {}};
  const ContextCut all{.rank = 0, .size = size, .length = kLength};  // says which units all cuts have
  const auto columns = [&](const ContextCut& cut) {
    std::vector<std::vector<int64_t>> positions;
    for (const auto& of_column : cuts) positions.push_back(positions_of(cut.runs_of(all.units_of(of_column))));
    return positions;
  };
  const auto whole_columns = columns({.rank = 0, .size = 1, .length = kLength});
  std::multiset<Pair> gathered, in_parts, whole, ring, two_levels;
  for (int64_t rank = 0; rank < size; ++rank) {
    TestDevice test;
    const ContextCut cut{.rank = rank, .size = size, .length = kLength};
    const SequenceLayout layout = context_parallel_layout(
        test.context(), table,
        {.cut = cut, .gathers_keys = true, .num_head_ranks = {1, size, size / 2}, .splits_keys = splits_keys});
    add_pairs(layout, columns(cut), whole_columns, gathered);
    for (const SequenceLayout& part : layout.context()->all_keys) {
      EXPECT_NE(part.view().form, SpanForm::kAny);
      add_pairs(part, columns(cut), whole_columns, in_parts);
    }
    if (rank == 0) add_pairs(layout.context()->ring(size).steps.at(0).at(0), whole_columns, whole_columns, whole);
    for (const int64_t num_head_ranks : std::set{int64_t{1}, size / 2}) {
      const RingLayouts& layouts = layout.context()->ring(num_head_ranks);
      if (rank % num_head_ranks != 0) continue;  // ranks that share heads see the same
      ASSERT_EQ(std::ssize(layouts.steps), layouts.cut.size);
      for (int64_t step = 0; step < layouts.cut.size; ++step) {
        ContextCut owner = layouts.cut;
        owner.rank = (owner.rank + owner.size - step) % owner.size;
        for (const SequenceLayout& call : layouts.steps[static_cast<size_t>(step)]) {
          EXPECT_TRUE(splits_keys || call.view().form != SpanForm::kAny);
          add_pairs(call, columns(layouts.cut), columns(owner), num_head_ranks == 1 ? ring : two_levels);
        }
      }
    }
  }
  const std::multiset<Pair> expected = pairs_of(cuts, kLength);
  EXPECT_EQ(gathered, expected);
  EXPECT_EQ(in_parts, expected);
  EXPECT_EQ(whole, expected);
  EXPECT_EQ(ring, expected);
  EXPECT_EQ(size > 2 ? two_levels : ring, expected);
}

TEST(ContextLayouts, SeeEachPairOfTokensOnce) {
  for (const bool splits_keys : {false, true})
    for (const int64_t size : {2, 4})
      for (const auto& cuts : std::vector<std::vector<std::vector<int32_t>>>{
               {{}}, {{3, 17}, {}}, {{1, 2, 3, 12}, {12}, {23}}, {{6, 12, 18}}, {{8, 16}, {16}}})
        expect_each_pair_once(cuts, size, splits_keys);
}

TEST(ContextLayouts, ARanksOwnKeysOfWholeSequencesAreUniform) {
  TestDevice test;
  const SequenceTable table{.b = 2, .first_sample = 0, .cuts = {{}, {}}, .positions = {}};
  const SequenceLayout layout = context_parallel_layout(
      test.context(), table, {.cut = {.rank = 1, .size = 2, .length = 16}, .num_head_ranks = {1, 2}});
  EXPECT_EQ(layout.context()->ring(1).steps.at(0).at(0).view().form, SpanForm::kUniform);
  EXPECT_EQ(layout.context()->ring(1).steps.at(1).at(0).view().num_spans, 2) << "one for each sequence";
  EXPECT_EQ(layout.context()->ring(1).steps.at(1).at(0).view().form, SpanForm::kAllVisible);
  EXPECT_EQ(layout.context()->ring(2).steps.at(0).at(0).view().form, SpanForm::kUniform);
}

TEST(ContextLayouts, NumberKeysByTheirPlaceInTheirDocument) {
  TestDevice test;
  const SequenceTable table{.b = 1, .first_sample = 0, .cuts = {{3}}, .positions = {}};
  const ContextCut cut{.rank = 0, .size = 2, .length = 8};  // rows 0 1 6 7; rank 1 has 2 3 4 5
  const SequenceLayout layout =
      context_parallel_layout(test.context(), table, {.cut = cut, .num_head_ranks = {1}, .splits_keys = true});
  const auto& steps = layout.context()->ring(1).steps;
  ASSERT_EQ(steps.at(1).size(), 2U);
  const SequenceSpan early = steps[1][0].view().spans[0], late = steps[1][1].view().spans[0];
  EXPECT_EQ(early.key_begin, 1);  // position 3, the first of the second document
  EXPECT_EQ(early.first_key, 0);
  EXPECT_EQ(late.key_begin, 2);  // position 4
  EXPECT_EQ(late.first_key, 1);
  EXPECT_EQ(layout.rows()(3), 7);
}

TEST(ContextLayouts, GiveEachRowItsPosition) {
  TestDevice test;
  std::vector<int32_t> restarted{0, 0, 1, 1, 2, 2, 0, 3, 1, 4, 2, 5, 3, 6, 4, 7};  // [8, 2]
  const SequenceTable plain{.b = 2, .first_sample = 0, .cuts = {{}, {}}, .positions = {}};
  SequenceTable given = plain;
  given.positions = restarted;
  const ContextCut cut{.rank = 1, .size = 2, .length = 8};
  const SequenceLayout layout = context_parallel_layout(test.context(), plain, {.cut = cut});
  const SequenceLayout of_given = context_parallel_layout(test.context(), given, {.cut = cut});
  EXPECT_EQ(layout.num_positions(), 6);
  EXPECT_EQ(of_given.num_positions(), 6);
  for (int64_t row = 0; row < 4; ++row) {
    EXPECT_EQ(layout.view().position(row, 0), row + 2);
    EXPECT_EQ(of_given.view().position(row, 0), restarted[static_cast<size_t>(2 * (row + 2))]);
  }
  EXPECT_THROW(context_parallel_layout(test.context(), plain, {.cut = {.rank = 0, .size = 2, .length = 6}}),
               ShapeError);
}

}  // namespace
}  // namespace megatron::testing
