#include "megatron/training/micro_batches.h"

#include <gtest/gtest.h>

#include "megatron/datasets/micro_batch.h"
#include "megatron/models/gpt/gpt_family.h"
#include "megatron/training/context_batches.h"
#include "megatron/training/loss_sum.h"

namespace megatron {
namespace {

const int64_t* tokens_of(const HostBatch& batch) {
  return std::get<std::span<const int64_t>>(batch.tensors.at(0).values).data();
}

TEST(MicroBatches, ReferToTheElementsOfAVectorInOrderAndToPartsOfIt) {
  std::vector<MicroBatch<int64_t>> owned(5);
  for (size_t m = 0; m < owned.size(); ++m) {
    owned[m].num_valid_tokens = int64_t{1} << m;
    owned[m].tokens = {7};
  }
  const MicroBatches batches(owned);
  ASSERT_EQ(batches.size(), owned.size());
  for (size_t m = 0; m < owned.size(); ++m) EXPECT_EQ(tokens_of(batches[m]), owned[m].tokens.data());
  EXPECT_EQ(num_valid_tokens_of(batches), 31);
  EXPECT_EQ(num_valid_tokens_of(batches.first(2)), 3);
  EXPECT_EQ(num_valid_tokens_of(batches.after(2)), 28);
  EXPECT_EQ(tokens_of(batches.after(2)[0]), owned[2].tokens.data());
  EXPECT_TRUE(batches.after(5).empty());
}

TEST(MicroBatches, RepeatedAreOneBatchThatNobodyCopies) {
  const OwnedBatch batch = gpt_family().blank_batch(3, 7, {});
  const int64_t* tokens = std::get<std::vector<int64_t>>(batch.tensors.at(0).values).data();
  const MicroBatches batches = MicroBatches::repeated(batch, 1000);
  ASSERT_EQ(batches.size(), 1000);
  for (size_t m = 0; m < batches.size(); ++m) EXPECT_EQ(tokens_of(batches[m]), tokens);
  EXPECT_EQ(tokens_of(batches.after(997)[2]), tokens);
  EXPECT_EQ(num_valid_tokens_of(batches.after(997)), 3 * 21);
}

std::vector<int64_t> all_tokens_of(const HostBatch& batch) {
  const auto tokens = std::get<std::span<const int64_t>>(batch.tensors.at(0).values);
  return {tokens.begin(), tokens.end()};
}

TEST(ContextBatches, HoldBothChunksOfEachSampleAndTheirValidTokens) {
  std::vector<OwnedBatch> whole{gpt_family().blank_batch(2, 8, {})};
  auto& tokens = std::get<std::vector<int64_t>>(whole[0].tensors[0].values);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int64_t>(i);
  auto& mask = std::get<std::vector<float>>(whole[0].tensors[2].values);
  mask[0] = mask[7] = mask[11] = 0;
  const ContextBatches first(MicroBatches(whole), {.rank = 0, .size = 2}),
      second(MicroBatches(whole), {.rank = 1, .size = 2});
  EXPECT_EQ(all_tokens_of(first.own()[0]), (std::vector<int64_t>{0, 1, 6, 7, 8, 9, 14, 15}));
  EXPECT_EQ(all_tokens_of(second.own()[0]), (std::vector<int64_t>{2, 3, 4, 5, 10, 11, 12, 13}));
  EXPECT_EQ(first.own()[0].num_valid_tokens, 6);
  EXPECT_EQ(second.own()[0].num_valid_tokens, 7);
  EXPECT_EQ(first.own()[0].sequences.at(0).length, 8);
}

TEST(ContextBatches, OfOneRankAreThoseThatWereGiven) {
  const std::vector<OwnedBatch> whole{gpt_family().blank_batch(1, 7, {})};
  const ContextBatches own(MicroBatches(whole), {});
  EXPECT_EQ(tokens_of(own.own()[0]), tokens_of(MicroBatches(whole)[0]));
  EXPECT_THROW(ContextBatches(MicroBatches(whole), {.rank = 0, .size = 2}), ShapeError);
}

}  // namespace
}  // namespace megatron
