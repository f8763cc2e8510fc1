#include "megatron/datasets/data_loader.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>

#include "megatron/base/error.h"

namespace megatron {
namespace {

/// Sample i is i, i + 1, ...; some samples fail or are slow.
class Counting final : public Dataset {
 public:
  explicit Counting(int64_t size) : size_(size) {}
  int64_t size() const override { return size_; }
  void read(int64_t index, GptSample& sample) const override {
    ++num_reads;
    if (index == failing_sample) throw DataError("sample " + std::to_string(index) + " is damaged");
    if (index % 7 == 3) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    sample.tokens = {index, index + 1, index + 2};
    sample.labels = {index + 1, index + 2, 0};
    sample.position_ids = {0, 1, 2};
    sample.loss_mask = {1, 1, index % 2 == 0 ? 1.0f : 0.0f};
    sample.document_cuts.clear();
    for (int32_t cut = 1; cut <= index % 3; ++cut) sample.document_cuts.push_back(cut);
  }

  int64_t failing_sample = -1;
  mutable std::atomic<int> num_reads = 0;

 private:
  int64_t size_;
};

std::unique_ptr<Sampler> sampler(const Dataset& dataset, int64_t consumed) {
  return std::make_unique<SingleSampler>(dataset.size(), consumed, DataParallelSlice{2, 0, 1}, true);
}

TEST(MicroBatch, HoldsItsSamplesRowByRow) {
  const Counting dataset(10);
  MicroBatch<int32_t> batch;
  assemble<int32_t>(dataset, std::vector<int64_t>{1, 2, 3}, batch);
  EXPECT_EQ(batch.num_samples, 3);
  EXPECT_EQ(batch.sequence_length, 3);
  EXPECT_EQ(batch.tokens, (std::vector<int32_t>{1, 2, 3, 2, 3, 4, 3, 4, 5}));
  EXPECT_EQ(batch.labels, (std::vector<int32_t>{2, 3, 0, 3, 4, 0, 4, 5, 0}));
  EXPECT_EQ(batch.position_ids, (std::vector<int32_t>{0, 1, 2, 0, 1, 2, 0, 1, 2}));
  EXPECT_EQ(batch.loss_mask, (std::vector<float>{1, 1, 0, 1, 1, 1, 1, 1, 0}));
  EXPECT_EQ(batch.num_valid_tokens, 7);
  EXPECT_EQ(batch.sample_indices, (std::vector<int64_t>{1, 2, 3}));
  const auto cuts = [&](int64_t b) {
    return std::vector<int32_t>(batch.document_cuts(b).begin(), batch.document_cuts(b).end());
  };
  EXPECT_EQ(cuts(0), (std::vector<int32_t>{1}));
  EXPECT_EQ(cuts(1), (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(cuts(2), (std::vector<int32_t>{}));
  assemble<int32_t>(dataset, std::vector<int64_t>{}, batch);
  EXPECT_EQ(batch.num_samples, 0);
  EXPECT_TRUE(batch.tokens.empty());
}

TEST(MicroBatch, RejectsTokensThatDoNotFit) {
  const Counting dataset(INT64_MAX);
  MicroBatch<int32_t> narrow;
  MicroBatch<int64_t> wide;
  const std::vector<int64_t> large = {int64_t{1} << 31};
  EXPECT_THROW(assemble<int32_t>(dataset, large, narrow), DataError);
  assemble<int64_t>(dataset, large, wide);
  EXPECT_EQ(wide.tokens[0], int64_t{1} << 31);
}

TEST(DataLoader, DeliversTheSamplersBatchesWhateverTheDepth) {
  const Counting dataset(41);
  for (int depth : {0, 1, 2, 5, 100}) {
    DataLoader<int64_t> loader(dataset, sampler(dataset, 4), depth);
    EXPECT_EQ(loader.consumed_samples(), 4);
    MicroBatch<int64_t> batch;
    int64_t position = 4;
    while (loader.next(batch)) {
      EXPECT_EQ(batch.sample_indices, (std::vector<int64_t>{position, position + 1}));
      EXPECT_EQ(batch.tokens[3], position + 1);
      position += 2;
      EXPECT_EQ(batch.consumed_samples, position);
      EXPECT_EQ(loader.consumed_samples(), position);
    }
    EXPECT_EQ(position, 40);
    EXPECT_FALSE(loader.next(batch));
  }
}

TEST(DataLoader, ContinuesFromAnyPosition) {
  const Counting dataset(60);
  DataLoader<int32_t> whole(dataset, sampler(dataset, 0), 2);
  MicroBatch<int32_t> expected, batch;
  for (int i = 0; i < 11; ++i) whole.next(expected);
  DataLoader<int32_t> resumed(dataset, sampler(dataset, whole.consumed_samples()), 2);
  while (whole.next(expected)) {
    ASSERT_TRUE(resumed.next(batch));
    EXPECT_EQ(batch.tokens, expected.tokens);
  }
  EXPECT_FALSE(resumed.next(batch));
}

TEST(DataLoader, DeliversAnErrorInItsPlaceAndKeepsIt) {
  for (int depth : {0, 1, 3}) {
    Counting dataset(40);
    dataset.failing_sample = 9;
    DataLoader<int32_t> loader(dataset, sampler(dataset, 0), depth);
    MicroBatch<int32_t> batch;
    for (int i = 0; i < 4; ++i) EXPECT_TRUE(loader.next(batch));
    for (int i = 0; i < 3; ++i) {
      try {
        loader.next(batch);
        FAIL() << "a damaged batch was delivered";
      } catch (const DataError& error) {
        EXPECT_STREQ(error.what(), "sample 9 is damaged");
      }
    }
    EXPECT_EQ(loader.consumed_samples(), 8);
  }
}

TEST(DataLoader, ReadsAheadByTheRequestedDepthOnly) {
  const Counting dataset(1000);
  DataLoader<int32_t> loader(dataset, sampler(dataset, 0), 3);
  for (int i = 0; i < 1000 && dataset.num_reads < 6; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(dataset.num_reads, 6);  // three batches of two
}

TEST(DataLoader, CanBeDroppedAtAnyTime) {
  const Counting dataset(1000);
  for (int num_batches = 0; num_batches < 20; ++num_batches) {
    DataLoader<int32_t> loader(dataset, sampler(dataset, 0), 2);
    MicroBatch<int32_t> batch;
    for (int i = 0; i < num_batches; ++i) loader.next(batch);
  }
}

}  // namespace
}  // namespace megatron
