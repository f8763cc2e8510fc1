#include "megatron/core/sequence_layout.h"

#include <gtest/gtest.h>

#include "tests/testing/test_device.h"

namespace megatron::testing {
namespace {

/// Pairs (query, key) that attention with a window sees, counted one by one.
int64_t count_pairs(const SequenceLayoutView& layout, int64_t window_left, int64_t window_right) {
  int64_t num = 0;
  for (int64_t i = 0; i < layout.num_spans; ++i) {
    const SequenceSpan& span = layout.spans[i];
    for (int64_t q = 0; q < span.query_length; ++q)
      for (int64_t k = 0; k < span.key_length; ++k) {
        const int64_t distance = k - span.query_offset - q;
        num += (window_left < 0 || distance >= -window_left) && (window_right < 0 || distance <= window_right);
      }
  }
  return num;
}

TEST(SequenceLayout, CountsThePairsOfAttention) {
  TestDevice test;
  const Context ctx = test.context();
  const SequenceSpan few_keys{.query_length = 6, .key_length = 3, .query_offset = 2};
  const SequenceLayout layouts[] = {SequenceLayout::uniform(ctx, {.s = 7, .b = 2}),
                                    SequenceLayout::uniform(ctx, {.s = 3, .b = 1, .first_position = 5}),
                                    SequenceLayout::cut_at(ctx, {.s = 9, .b = 2}, {{2, 5}, {}}, {}),
                                    SequenceLayout::from_spans(ctx, {.s = 6, .b = 1}, {few_keys}, {})};
  for (const SequenceLayout& layout : layouts)
    for (const int64_t left : {-1, 0, 1, 3, 100})
      for (const int64_t right : {-1, 0, 1, 3, 100})
        EXPECT_EQ(layout.num_visible_pairs(left, right), count_pairs(layout.view(), left, right))
            << left << " " << right;
}

TEST(SequenceLayout, KnowsHowManyKeysAndPositionsItNeeds) {
  TestDevice test;
  const Context ctx = test.context();
  const SequenceLayout cached = SequenceLayout::uniform(ctx, {.s = 3, .b = 1, .first_position = 5});
  EXPECT_EQ(cached.num_keys(), 8);
  EXPECT_EQ(cached.num_positions(), 8);
  const SequenceLayout restarted = SequenceLayout::cut_at(ctx, {.s = 4, .b = 1}, {{2}}, {0, 1, 0, 1});
  EXPECT_EQ(restarted.num_keys(), 4);
  EXPECT_EQ(restarted.num_positions(), 2);
}

TEST(SequenceLayout, KnowsTheFormOfItsSpans) {
  TestDevice test;
  const Context ctx = test.context();
  const auto form = [](const SequenceLayout& layout) { return layout.view().form; };
  const auto of_spans = [&](const std::vector<SequenceSpan>& spans) {
    return SequenceLayout::from_spans(ctx, {.s = 9, .b = 2}, spans, {});
  };
  EXPECT_EQ(form(SequenceLayout::uniform(ctx, {.s = 7, .b = 2})), SpanForm::kUniform);
  EXPECT_EQ(form(SequenceLayout::uniform(ctx, {.s = 3, .b = 1, .first_position = 5})), SpanForm::kEndsAligned);
  EXPECT_EQ(form(SequenceLayout::cut_at(ctx, {.s = 9, .b = 2}, {{2, 5}, {}}, {})), SpanForm::kPacked);
  const SequenceSpan padded{.batch = 1, .query_length = 8, .key_length = 8};
  const SequenceSpan next{.batch = 1, .query_begin = 8, .query_length = 1, .key_begin = 8, .key_length = 1};
  EXPECT_EQ(form(of_spans({padded, next})), SpanForm::kPacked);
  EXPECT_EQ(form(of_spans({next, padded})), SpanForm::kAny);
  EXPECT_EQ(form(of_spans({padded, padded})), SpanForm::kAny);
  EXPECT_EQ(form(of_spans({{.query_length = 4, .key_length = 9}})), SpanForm::kAny);
  const SequenceSpan behind{.query_length = 4, .key_length = 5, .query_offset = 5};
  const SequenceSpan one{.query_begin = 4, .query_length = 1, .key_begin = 5, .key_length = 1};
  SequenceSpan shares_keys = one;
  shares_keys.key_begin = 4;
  EXPECT_EQ(form(of_spans({behind})), SpanForm::kAllVisible);
  EXPECT_EQ(form(of_spans({behind, one})), SpanForm::kAllVisible);
  EXPECT_EQ(form(of_spans({behind, shares_keys})), SpanForm::kAny);
  EXPECT_EQ(form(of_spans({behind, padded})), SpanForm::kAny) << "padded is causal";
  const SequenceSpan aligned{.query_length = 4, .key_length = 5, .query_offset = 1};
  EXPECT_EQ(form(of_spans({aligned, one, padded})), SpanForm::kEndsAligned);
  EXPECT_EQ(form(of_spans({aligned, behind})), SpanForm::kAny) << "they share rows";
}

TEST(SequenceLayout, GivesEachRowItsGlobalNumber) {
  TestDevice test;
  const Context ctx = test.context();
  // Rows 4.. of samples 10 and 11, of sequences of 16 tokens.
  const RowMap rows =
      SequenceLayout::uniform(ctx, {.s = 2, .b = 2, .first_sample = 10, .sequence_length = 16, .first_position = 4})
          .rows();
  EXPECT_EQ(rows(0), 10 * 16 + 4);
  EXPECT_EQ(rows(1), 11 * 16 + 4);
  EXPECT_EQ(rows(2), 10 * 16 + 5);
}

TEST(SequenceLayout, RejectsSpansPositionsAndCutsThatDoNotFit) {
  TestDevice test;
  const Context ctx = test.context();
  const SequenceLayout::Options options{.s = 4, .b = 1};
  EXPECT_THROW(SequenceLayout::from_spans(ctx, options, {{.query_begin = 2, .query_length = 3}}, {}), ShapeError);
  EXPECT_THROW(SequenceLayout::from_spans(ctx, options, {{.batch = 1, .query_length = 3}}, {}), ShapeError);
  EXPECT_THROW(SequenceLayout::from_spans(ctx, options, {{.query_length = 3, .key_begin = -1}}, {}), ShapeError);
  EXPECT_THROW(SequenceLayout::from_spans(ctx, options, {}, {0, 1}), ShapeError);
  EXPECT_THROW(SequenceLayout::from_spans(ctx, options, {}, {0, 1, -1, 0}), ShapeError);
  EXPECT_THROW(SequenceLayout::cut_at(ctx, options, {{3, 2}}, {}), ShapeError);
  EXPECT_THROW(SequenceLayout::cut_at(ctx, options, {}, {}), ShapeError);
}

}  // namespace
}  // namespace megatron::testing
