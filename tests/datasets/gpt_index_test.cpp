#include "megatron/datasets/gpt_index.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "megatron/base/error.h"

namespace megatron {
namespace {

const std::vector<int32_t> kDocumentLengths = {7, 3, 12, 5, 9, 4, 6, 10, 2, 8};

GptIndexRequest request(std::optional<int64_t> num_samples) {
  return {.sequences = {0, 10},
          .tokens_per_epoch = 66,
          .sequence_length = 8,
          .extra_tokens = 1,
          .num_samples = num_samples};
}

std::vector<int64_t> array_elements(const NpyArray& array) {
  std::vector<int64_t> values(static_cast<size_t>(array.num_elements()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = array[static_cast<int64_t>(i)];
  return values;
}

struct Indices {
  std::vector<int64_t> documents, samples, shuffle;
};

Indices build(const GptIndexRequest& request) {
  NumpyRandomState random(1234);
  const EpochPlan plan = plan_epochs(request);
  const NpyArray documents = build_document_index(request, plan, random);
  const NpyArray samples = build_sample_index(request, plan, kDocumentLengths, documents);
  return {array_elements(documents), array_elements(samples), array_elements(build_shuffle_index(plan, random))};
}

// Expected values: Megatron 0.20 with seed 1234 over these lengths.
TEST(GptIndex, IsMegatronsForOneEpoch) {
  const Indices indices = build(request(std::nullopt));
  EXPECT_EQ(indices.documents, (std::vector<int64_t>{7, 2, 9, 1, 0, 8, 4, 5, 6, 3}));
  EXPECT_EQ(indices.samples, (std::vector<int64_t>{0, 0, 0, 8, 1, 6, 2, 2, 3, 2, 5, 0, 6, 6, 8, 1, 9, 3}));
  EXPECT_EQ(indices.shuffle, (std::vector<int64_t>{7, 5, 6, 0, 4, 3, 2, 1}));
}

TEST(GptIndex, KeepsAShortLastSampleOnRequest) {
  GptIndexRequest partial = request(std::nullopt);
  partial.drop_last = false;
  const Indices indices = build(partial);
  EXPECT_EQ(indices.samples, (std::vector<int64_t>{0, 0, 0, 8, 1, 6, 2, 2, 3, 2, 5, 0, 6, 6, 8, 1, 9, 3, 9, 4}));
  EXPECT_EQ(indices.shuffle, (std::vector<int64_t>{7, 3, 5, 1, 4, 8, 0, 2, 6}));
}

TEST(GptIndex, SeparatesTheFinalEpochBelowFourFifthsOfItsSamples) {
  for (const auto& [num_samples, separate] :
       {std::pair<int64_t, bool>{12, true}, {13, true}, {14, false}, {15, false}}) {
    const EpochPlan plan = plan_epochs(request(num_samples));
    EXPECT_EQ(plan.num_epochs, 2);
    EXPECT_EQ(plan.num_samples, 16);
    EXPECT_EQ(plan.separate_final_epoch, separate) << num_samples;
  }
  const Indices indices = build(request(12));
  EXPECT_EQ(indices.documents, (std::vector<int64_t>{7, 2, 9, 1, 0, 8, 4, 5, 6, 3, 7, 3, 5, 1, 4, 8, 0, 2, 6, 9}));
  EXPECT_EQ(indices.shuffle, (std::vector<int64_t>{5, 1, 4, 3, 0, 2, 6, 7, 13, 9, 8, 12, 11, 15, 14, 10}));
}

TEST(GptIndex, RepeatsTheDataUntilThereAreEnoughSamples) {
  for (int64_t num_samples = 0; num_samples < 200; ++num_samples) {
    for (int64_t extra : {0, 1}) {
      GptIndexRequest one = request(num_samples);
      one.extra_tokens = extra;
      const EpochPlan plan = plan_epochs(one);
      EXPECT_GE(plan.num_samples, num_samples);
      if (plan.num_epochs > 1) {
        EXPECT_LT((plan.num_epochs - 1) * 66, num_samples * 8 + extra);
      }
    }
  }
}

TEST(GptIndex, EverySampleOccursOnceAndCoversItsTokens) {
  for (int64_t num_samples : {1, 8, 9, 40, 77}) {
    const GptIndexRequest one = request(num_samples);
    const Indices indices = build(one);
    const std::set<int64_t> distinct(indices.shuffle.begin(), indices.shuffle.end());
    EXPECT_EQ(distinct.size(), indices.shuffle.size());
    EXPECT_EQ(*distinct.rbegin() + 1, static_cast<int64_t>(indices.shuffle.size()));
    // Row k is token 8 k of the concatenated documents.
    int64_t before = 0;
    size_t row = 0;
    for (size_t position = 0; position < indices.documents.size(); ++position) {
      for (; row < indices.samples.size() / 2 && indices.samples[2 * row] == static_cast<int64_t>(position); ++row) {
        EXPECT_EQ(before + indices.samples[2 * row + 1], 8 * static_cast<int64_t>(row));
      }
      before += kDocumentLengths[static_cast<size_t>(indices.documents[position])];
    }
    EXPECT_EQ(row, indices.samples.size() / 2);
  }
}

TEST(GptIndex, RejectsImpossibleRequests) {
  EXPECT_THROW(plan_epochs({.sequences = {0, 3}, .tokens_per_epoch = 0, .sequence_length = 8, .num_samples = 1}),
               DataError);
  EXPECT_THROW(
      plan_epochs({.sequences = {0, 3}, .tokens_per_epoch = 9, .sequence_length = 8, .num_samples = INT64_MAX / 2}),
      ConfigError);
  EXPECT_EQ(plan_epochs({.sequences = {0, 0}, .tokens_per_epoch = 0, .sequence_length = 8, .num_samples = std::nullopt})
                .num_samples,
            0);
}

TEST(GptIndex, CountsShortLastSamplesInIntegers) {
  // Megatron divides in float32 here and gives 24414062.
  const EpochPlan plan = plan_epochs({.sequences = {0, 1},
                                      .tokens_per_epoch = 100000000001,
                                      .sequence_length = 4096,
                                      .extra_tokens = 1,
                                      .num_samples = std::nullopt,
                                      .drop_last = false});
  EXPECT_EQ(plan.num_samples, 24414063);
}

}  // namespace
}  // namespace megatron
