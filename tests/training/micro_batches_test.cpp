#include "megatron/training/micro_batches.h"

#include <gtest/gtest.h>

#include "megatron/datasets/micro_batch.h"
#include "megatron/models/gpt/gpt_family.h"
#include "megatron/training/loss_sum.h"

namespace megatron {
namespace {

const int64_t* tokens_of(const HostBatch& batch) {
  return std::get<std::span<const int64_t>>(batch.tensors.at(0).values).data();
}

TEST(MicroBatches, OfAVectorAreItsElementsInOrderAndPartsOfThem) {
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
  const OwnedBatch batch = gpt_family().blank_batch(3, 7);
  const int64_t* tokens = std::get<std::vector<int64_t>>(batch.tensors.at(0).values).data();
  const MicroBatches batches = MicroBatches::repeated(batch, 1000);
  ASSERT_EQ(batches.size(), 1000);
  for (size_t m = 0; m < batches.size(); ++m) EXPECT_EQ(tokens_of(batches[m]), tokens);
  EXPECT_EQ(tokens_of(batches.after(997)[2]), tokens);
  EXPECT_EQ(num_valid_tokens_of(batches.after(997)), 3 * 21);
}

}  // namespace
}  // namespace megatron
