// The micro-batches of a rank whose documents have as many ranks as they need.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "megatron/comm/threads/rank_threads.h"
#include "megatron/training/hybrid_context_batches.h"
#include "tests/training/small_trainer.h"

namespace megatron::testing {
namespace {

/// A sample of documents that begin at 0 and at each cut. @param unmasked  tokens with a weight in the loss: [0, it)
MicroBatch<int64_t> sample_with(int64_t first_token, int64_t length, const std::vector<int32_t>& cuts,
                                int64_t unmasked) {
  std::vector<int64_t> tokens;
  for (int64_t i = 0; i <= length; ++i) tokens.push_back(first_token + i);
  MicroBatch<int64_t> sample = sample_of(tokens, cuts);
  std::fill(sample.loss_mask.begin() + unmasked, sample.loss_mask.end(), 0.0F);
  sample.num_valid_tokens = unmasked;
  return sample;
}

/// The micro-batch of a rank.
struct RankBatch {
  int64_t num_ranks = 0;  // that share it
  std::vector<int64_t> tokens;
  std::vector<int32_t> cuts;
  int64_t num_valid_tokens = 0;
  bool operator==(const RankBatch&) const = default;
};
std::ostream& operator<<(std::ostream& out, const RankBatch& batch) {
  out << batch.num_ranks << " ranks, " << batch.num_valid_tokens << " valid of";
  for (const int64_t token : batch.tokens) out << ' ' << token;
  out << ", cuts";
  for (const int32_t cut : batch.cuts) out << ' ' << cut;
  return out;
}
using RankBatchLists = std::vector<std::vector<RankBatch>>;  // of each rank

/// @param samples  of each data-parallel rank
RankBatchLists batches_of_ranks(const ParallelSizes& sizes, const HybridContextOptions& options,
                                const std::vector<std::vector<MicroBatch<int64_t>>>& samples) {
  RankBatchLists lists(static_cast<size_t>(sizes.world_size));
  ThreadWorld ranks(sizes.world_size, std::chrono::minutes(1));
  run_rank_threads(ranks, [&](World& world) {
    const ProcessGroupCollection groups = ProcessGroupCollection::make(world, ParallelLayout(sizes));
    const ContextBatches batches =
        hybrid_context_batches(samples[static_cast<size_t>(groups.dp.rank())], groups, options);
    auto& own = lists[static_cast<size_t>(world.rank())];
    for (size_t m = 0; m < batches.own().size(); ++m) {
      const HostBatch batch = batches.own()[m];
      const auto tokens = std::get<std::span<const int64_t>>(batch.tensors[0].values);
      const auto cuts = batch.sequences[0].cuts;
      own.push_back({.num_ranks = batches.places()[m].size,
                     .tokens = {tokens.begin(), tokens.end()},
                     .cuts = {cuts.begin(), cuts.end()},
                     .num_valid_tokens = batch.num_valid_tokens});
    }
  });
  return lists;
}

RankBatchLists batches_of_ranks(int num_ranks, int64_t most,
                                const std::vector<std::vector<MicroBatch<int64_t>>>& samples) {
  return batches_of_ranks({.world_size = num_ranks, .hybrid_context_parallel = true}, {.max_seqlen_per_rank = most},
                          samples);
}

TEST(HybridContextBatches, EndDocumentsWithTheLastTokenThatHasAWeight) {
  // Conversations of 3 and 2 tokens, whose last ones have the padding of samples of 16: no document needs two ranks.
  EXPECT_EQ(batches_of_ranks(2, 8, {{sample_with(10, 16, {}, 3)}, {sample_with(40, 16, {}, 2)}}),
            (RankBatchLists{{{1, {10, 11, 12}, {}, 3}}, {{1, {40, 41}, {}, 2}}}));
  // A document without such a token goes nowhere; what is left has two ranks.
  EXPECT_EQ(batches_of_ranks(2, 8, {{sample_with(10, 16, {4}, 4)}, {sample_with(40, 16, {}, 0)}}),
            (RankBatchLists{{{2, {10, 13}, {}, 2}}, {{2, {11, 12}, {}, 2}}}));
}

TEST(HybridContextBatches, HaveAsManyDocumentsOfOneRankAsThereIsRoomFor) {
  // Eight documents of 2 tokens, and four of 3 and one of 4: schedules begin with the longest.
  const RankBatchLists lists = batches_of_ranks(
      2, 8, {{sample_with(10, 16, {2, 4, 6, 8, 10, 12, 14}, 16)}, {sample_with(40, 16, {3, 6, 9, 12}, 16)}});
  const std::set<int64_t> starts = {10, 12, 14, 16, 18, 20, 22, 24, 40, 43, 46, 49, 52};
  std::vector<int64_t> tokens;
  for (const std::vector<RankBatch>& batches : lists) {
    for (size_t m = 0; m < batches.size(); ++m) {
      const RankBatch& batch = batches[m];
      EXPECT_EQ(batch.num_ranks, 1);
      EXPECT_LE(batch.tokens.size(), 8U);
      EXPECT_EQ(batch.num_valid_tokens, std::ssize(batch.tokens));
      EXPECT_FALSE(batch.cuts.empty()) << batch;
      for (const int32_t cut : batch.cuts)
        EXPECT_TRUE(starts.contains(batch.tokens[static_cast<size_t>(cut)])) << batch;
      tokens.insert(tokens.end(), batch.tokens.begin(), batch.tokens.end());
      if (m + 1 == batches.size()) continue;
      const std::vector<int32_t>& next = batches[m + 1].cuts;
      EXPECT_GT(batch.tokens.size() + static_cast<size_t>(next[0]), 8U) << "the next document had room";
    }
  }
  std::ranges::sort(tokens);
  std::vector<int64_t> all;
  for (const int64_t first : {10, 40})
    for (int64_t i = 0; i < 16; ++i) all.push_back(first + i);
  EXPECT_EQ(tokens, all);
}

TEST(HybridContextBatches, OfARankWithoutDocumentsArePadding) {
  EXPECT_EQ(batches_of_ranks({.world_size = 2, .hybrid_context_parallel = true},
                             {.max_seqlen_per_rank = 8, .row_multiple = 2},
                             {{sample_with(10, 16, {}, 0)}, {sample_with(40, 16, {}, 0)}}),
            (RankBatchLists{{{1, {0, 0}, {}, 0}}, {{1, {0, 0}, {}, 0}}}));
}

TEST(HybridContextBatches, AreGatheredFromRanksThatShareSamplesToo) {
  const ParallelSizes sizes{.world_size = 4, .context_parallel_size = 2, .hybrid_context_parallel = true};
  EXPECT_EQ(
      batches_of_ranks(sizes, {.max_seqlen_per_rank = 8},
                       {{sample_with(10, 16, {3}, 5)}, {sample_with(40, 16, {1}, 3)}}),
      (RankBatchLists{{{1, {10, 11, 12}, {}, 3}}, {{1, {13, 14}, {}, 2}}, {{1, {41, 42}, {}, 2}}, {{1, {40}, {}, 1}}}));
}

}  // namespace
}  // namespace megatron::testing
