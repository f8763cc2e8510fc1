#include "megatron/tensor_parallel/lm_head_loss.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "megatron/autograd/shard_elements.h"
#include "tests/testing/op_case.h"
#include "tests/testing/rank_threads.h"
#include "tests/testing/tolerance.h"

namespace megatron::testing {
namespace {

TEST(LmHeadLoss, PassesAllChecksOverChunksAndAPaddedVocabulary) {
  for (const auto& [smoothing, soft_cap] : {std::pair{0.0, 0.0}, {0.2, 0.0}, {0.2, 1.3}})
    check({.name = "lm_head_loss",
           .inputs = {{3, 2, 5}},
           .parameters = {{.shape = {9, 5}}},
           .forward =
               [smoothing = smoothing, soft_cap = soft_cap](Context& ctx, OpOperands& o) {
                 const Tensor labels = uniform_integers(ctx, {2, 3}, 7).transpose(0, 1);
                 return std::vector{lm_head_loss(
                     ctx, o.inputs[0], *o.parameters[0], labels,
                     {.vocab_size = 7, .label_smoothing = smoothing, .soft_cap = soft_cap, .most_chunk_logits = 18})};
               },
           .reduction_length = 45,
           .magnitude = 2});
}

/// A head on the ranks of a group.
struct HeadCase {
  int64_t vocab_size, padded_vocab_size;
  int64_t s, b, h = 4;
  double label_smoothing = 0;
  double soft_cap = 0;
  bool sequence_parallel = false;
  Phase phase = Phase::kBW;
  int64_t most_chunk_logits = LmHeadLossOptions{}.most_chunk_logits;
};

struct HeadResult {
  std::vector<double> loss, d_hidden, d_weight;  // of the whole
};

/// Copies a rank's rows of dimension 0 to their place in the whole.
void put_rows(const Tensor& rows, int rank, std::vector<double>& whole) {
  const std::vector<double> values = values_of(rows);
  std::copy(values.begin(), values.end(), whole.begin() + static_cast<std::ptrdiff_t>(values.size()) * rank);
}

/// Writes this rank's part of the result; `loss` by rank 0.
void run_head(const HeadCase& c, const ProcessGroup& group, HeadResult& result) {
  TestDevice test(DeviceKind::kCpu, 1);
  Context ctx = test.context();
  Parameter weight(
      ctx, {.name = "w",
            .shard = ShardSpec::cut_by({c.padded_vocab_size, c.h}, {.sections = {{c.padded_vocab_size, false}}}),
            .dtype = DType::kFloat64,
            .place = {.tensor = {group.rank(), group.size()}}});
  for_each_shard_element(weight, [&](int64_t whole, int64_t local) {
    weight.value().data<double>()[local] = 4 * uniform(ctx.key.at("w"), whole) - 2;
  });
  weight.set_main_grad(ctx.empty("dw", weight.shape(), DType::kFloat64, MemoryUse::kGradients));
  weight.begin_step();
  Tensor whole_hidden = ctx.empty("hidden", {c.s, c.b, c.h}, DType::kFloat64);
  fill_uniform(ctx, whole_hidden, "hidden");
  const int64_t rows = c.sequence_parallel ? c.s / group.size() : c.s;
  Tensor hidden = whole_hidden.slice(0, c.sequence_parallel ? rows * group.rank() : 0, rows);
  Tape tape(test.device);
  ctx.tape = &tape;
  ctx.mode = GradMode::kRecord;
  tape.watch(hidden);
  const Tensor loss = lm_head_loss(ctx, hidden, weight, uniform_integers(ctx, {c.b, c.s}, c.vocab_size).transpose(0, 1),
                                   {.vocab_size = c.vocab_size,
                                    .label_smoothing = c.label_smoothing,
                                    .soft_cap = c.soft_cap,
                                    .most_chunk_logits = c.most_chunk_logits,
                                    .group = group,
                                    .sequence_parallel = c.sequence_parallel});
  Tensor upstream = ctx.empty_like("upstream", loss);
  fill_uniform(ctx, upstream, "upstream");
  tape.seed(ctx, loss.slot, upstream);
  tape.backward(ctx, c.phase, 0);
  if (c.phase == Phase::kB) tape.backward_weight(ctx, 0);
  const Tensor d_hidden = tape.take_gradient(hidden.slot);
  if (group.rank() == 0) result.loss = values_of(loss);
  if (c.sequence_parallel || group.rank() == 0)
    put_rows(d_hidden, c.sequence_parallel ? group.rank() : 0, result.d_hidden);
  put_rows(weight.main_grad(), group.rank(), result.d_weight);
}

HeadResult run_head_on(int num_ranks, const HeadCase& c) {
  HeadResult result;
  result.d_hidden.assign(static_cast<size_t>(c.s * c.b * c.h), HUGE_VAL);
  result.d_weight.assign(static_cast<size_t>(c.padded_vocab_size * c.h), HUGE_VAL);
  run_ranks(num_ranks, [&](RankContext& rank) { run_head(c, rank.group, result); });
  return result;
}

void expect_near(const std::vector<double>& actual, const std::vector<double>& expected, int64_t length,
                 const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  double largest = 0;
  for (const double value : expected) largest = std::max(largest, std::abs(value));
  for (size_t i = 0; i < expected.size(); ++i)
    ASSERT_NEAR(actual[i], expected[i], tolerance(DType::kFloat64, length, largest)) << what << " element " << i;
}

void expect_equal_to_one_rank(int num_ranks, const HeadCase& c) {
  HeadCase alone = c;
  alone.sequence_parallel = false;
  const HeadResult one = run_head_on(1, alone), several = run_head_on(num_ranks, c);
  expect_near(several.loss, one.loss, c.vocab_size + c.h, "loss");
  expect_near(several.d_hidden, one.d_hidden, c.vocab_size + c.h, "gradient of hidden");
  expect_near(several.d_weight, one.d_weight, c.s * c.b + c.vocab_size, "gradient of the weight");
  const auto first_padding = static_cast<size_t>(c.vocab_size * c.h);
  for (size_t i = first_padding; i < several.d_weight.size(); ++i)
    ASSERT_EQ(several.d_weight[i], 0) << "padding row " << i / static_cast<size_t>(c.h);
}

TEST(LmHeadLoss, OnAnyNumberOfRanksIsThatOfOneRankThoughSomeHoldNothingButPadding) {
  for (const int num_ranks : {2, 3, 4, 5})
    for (const double smoothing : {0.0, 0.1})
      for (const bool sequence_parallel : {false, true})
        for (const Phase phase : {Phase::kB, Phase::kBW}) {
          SCOPED_TRACE(fmt::format("{} ranks, smoothing {}, sequence parallel {}, phase {}", num_ranks, smoothing,
                                   sequence_parallel, static_cast<int>(phase)));
          expect_equal_to_one_rank(num_ranks, {.vocab_size = 7,
                                               .padded_vocab_size = 8 * num_ranks,
                                               .s = 2 * num_ranks,
                                               .b = 3,
                                               .label_smoothing = smoothing,
                                               .soft_cap = smoothing > 0 ? 0.7 : 0,
                                               .sequence_parallel = sequence_parallel,
                                               .phase = phase});
        }
}

TEST(LmHeadLoss, OfGpt2sVocabularyOnAnyNumberOfRanksIsThatOfOneRank) {
  for (const int num_ranks : {2, 3, 4, 5}) {
    const int64_t multiple = 128 * num_ranks;
    expect_equal_to_one_rank(num_ranks, {.vocab_size = 50257,
                                         .padded_vocab_size = (50257 + multiple - 1) / multiple * multiple,
                                         .s = num_ranks,
                                         .b = 2,
                                         .label_smoothing = 0.1,
                                         .sequence_parallel = num_ranks % 2 == 0});
  }
}

TEST(LmHeadLoss, CutsLongBatchesIntoChunksOnAnyNumberOfRanks) {
  // 5000 tokens: ten chunks on two ranks and twenty on one
  expect_equal_to_one_rank(2, {.vocab_size = 6,
                               .padded_vocab_size = 8,
                               .s = 2500,
                               .b = 2,
                               .sequence_parallel = true,
                               .most_chunk_logits = 2100});
}

TEST(LmHeadChunks, AreOfOneLengthThatAProductCanCountAndAsFewAsThereCanBe) {
  constexpr int64_t kMost = LmHeadLossOptions{}.most_chunk_logits, kMultiple = 128;
  for (const int64_t positions : {1, 5, 1024, 4095})
    for (const int64_t columns : {1, 16, 64, 500})
      for (const int64_t rows : {1, 50304, 151936, 100000000}) {
        SCOPED_TRACE(fmt::format("{} positions of {}, {} rows", positions, columns, rows));
        const LmHeadChunks chunks(positions, columns, rows);
        EXPECT_TRUE(chunks.length == 1 || chunks.length * columns * rows <= kMost);
        EXPECT_GE(chunks.num * chunks.length, positions);
        EXPECT_LT(chunks.num * chunks.length - positions, chunks.length);
        const int64_t more = (positions + chunks.num - 2) / std::max<int64_t>(1, chunks.num - 1);  // of one chunk less
        EXPECT_TRUE(chunks.num == 1 || more * columns > kMost / rows / kMultiple * kMultiple);
      }
}

TEST(LmHeadLoss, CutsIntoChunksOfOneLength) {
  TestDevice test(DeviceKind::kCpu, 1);
  Context ctx = test.context();
  constexpr int64_t kRows = 4096, kTokens = 10, kMostTokens = 8;
  Parameter weight(ctx, {.name = "w", .shard = ShardSpec::whole({kRows, 1}), .dtype = DType::kFloat64});
  const Tensor hidden = ctx.empty("hidden", {kTokens, 1, 1}, DType::kFloat64);
  const Tensor labels = uniform_integers(ctx, {kTokens, 1}, kRows);
  const int64_t before = test.device.arena.amount(MemoryUse::kActivations).live;
  lm_head_loss(ctx, hidden, weight, labels, {.vocab_size = kRows, .most_chunk_logits = kMostTokens * kRows});
  const int64_t row_bytes = 8 * kRows, peak = test.device.arena.amount(MemoryUse::kActivations).peak - before;
  EXPECT_GE(peak, kTokens / 2 * row_bytes);
  EXPECT_LT(peak, (kTokens / 2 + 1) * row_bytes) << "the logits of one chunk are there at a time";
}

TEST(LmHeadLoss, RejectsAVocabularyBeyondTheRowsOfAllRanks) {
  run_ranks(2, [](RankContext& rank) {
    TestDevice test(DeviceKind::kCpu, 1);
    Context ctx = test.context();
    Parameter weight(ctx, {.name = "w", .shard = ShardSpec::whole({4, 3})});
    const Tensor hidden = ctx.empty("hidden", {2, 1, 3}, DType::kFloat32);
    EXPECT_THROW(
        lm_head_loss(ctx, hidden, weight, uniform_integers(ctx, {2, 1}, 4), {.vocab_size = 9, .group = rank.group}),
        ShapeError);
  });
}

}  // namespace
}  // namespace megatron::testing
