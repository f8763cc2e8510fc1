// Samplers against tests/golden/data/samplers.
#include "megatron/datasets/samplers.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <numeric>

#include "megatron/base/error.h"
#include "tests/datasets/golden.h"

namespace megatron {
namespace {

using nlohmann::json;
using testing::golden;
using testing::is_error;
using Batches = std::vector<std::vector<int64_t>>;

Batches drain(Sampler& sampler) {
  Batches batches;
  for (std::vector<int64_t> indices; sampler.next(indices);) batches.push_back(indices);
  return batches;
}

DataParallelSlice slice_of(const json& expected, int64_t rank) {
  return {
      .micro_batch_size = expected["micro_batch"].get<int64_t>(), .rank = rank, .size = expected["dp"].get<int64_t>()};
}

TEST(SingleSampler, GivesMegatronsBatchesToEveryRank) {
  for (const json& expected : golden("samplers/samplers.json")["single"]) {
    const auto total = expected["total"].get<int64_t>(), consumed = expected["consumed"].get<int64_t>();
    SCOPED_TRACE(expected.dump());
    for (int64_t rank = 0; rank < expected["dp"].get<int64_t>(); ++rank) {
      for (bool drop_last : {true, false}) {
        const json& batches = expected[drop_last ? "ranks" : "ranks_keep_last"][static_cast<size_t>(rank)];
        if (is_error(batches)) {
          EXPECT_THROW(SingleSampler(total, consumed, slice_of(expected, rank), drop_last), ConfigError);
          continue;
        }
        SingleSampler sampler(total, consumed, slice_of(expected, rank), drop_last);
        EXPECT_EQ(drain(sampler), batches.get<Batches>());
      }
    }
  }
}

TEST(SingleSampler, GlobalBatchesAreRunsOfItsMicroBatches) {
  // Megatron's hybrid context parallel sampler hands out a rank's share of a whole global batch at once.
  for (const json& expected : golden("samplers/samplers.json")["hybrid"]) {
    const auto micro = expected["micro_batch"].get<int64_t>(), dp = expected["dp"].get<int64_t>();
    const int64_t num_micro_batches = expected["global_batch"].get<int64_t>() / (micro * dp);
    for (int64_t rank = 0; rank < dp; ++rank) {
      SingleSampler sampler(expected["total"].get<int64_t>(), expected["consumed"].get<int64_t>(),
                            slice_of(expected, rank), true);
      const Batches batches = drain(sampler);
      Batches global;
      for (size_t i = 0; i + 1 <= batches.size() / static_cast<size_t>(num_micro_batches); ++i) {
        global.emplace_back();
        for (int64_t m = 0; m < num_micro_batches; ++m) {
          const auto& one = batches[i * static_cast<size_t>(num_micro_batches) + static_cast<size_t>(m)];
          global.back().insert(global.back().end(), one.begin(), one.end());
        }
      }
      EXPECT_EQ(global, expected["ranks"][static_cast<size_t>(rank)].get<Batches>());
    }
  }
}

TEST(CyclicSampler, GivesMegatronsBatchesPassAfterPass) {
  for (const json& expected : golden("samplers/samplers.json")["cyclic"]) {
    SCOPED_TRACE(expected.dump().substr(0, 100));
    const auto total = expected["total"].get<int64_t>(), consumed = expected["consumed"].get<int64_t>();
    const bool sharding = expected["data_sharding"].get<bool>();
    for (int64_t rank = 0; rank < expected["dp"].get<int64_t>(); ++rank) {
      const json& result = expected["ranks"][static_cast<size_t>(rank)];
      if (is_error(result)) {
        EXPECT_THROW(CyclicSampler(total, consumed, slice_of(expected, rank), sharding), ConfigError);
        continue;
      }
      CyclicSampler sampler(total, consumed, slice_of(expected, rank), sharding);
      for (const json& pass : result["passes"]) {
        EXPECT_EQ(sampler.consumed_samples(), pass["consumed_before"].get<int64_t>());
        for (const json& batch : pass["batches"]) {
          std::vector<int64_t> indices;
          ASSERT_TRUE(sampler.next(indices));
          EXPECT_EQ(indices, batch.get<std::vector<int64_t>>());
        }
      }
      EXPECT_EQ(sampler.consumed_samples(), result["consumed_after"].get<int64_t>());
    }
  }
}

TEST(CyclicSampler, RanksTakeTheSameNumberOfSteps) {
  // 3 samples for 2 ranks: rank 0 would have one more than rank 1 if the last one were given out.
  for (int64_t rank : {0, 1}) {
    CyclicSampler sampler(3, 0, {.micro_batch_size = 1, .rank = rank, .size = 2}, false);
    std::vector<int64_t> indices;
    for (int64_t step = 1; step <= 4; ++step) {
      sampler.next(indices);
      EXPECT_EQ(sampler.consumed_samples(), 2 * step);
    }
  }
}

TEST(FullValidationSampler, DealsAllSamplesAsMegatron) {
  for (const json& expected : golden("samplers/samplers.json")["full_validation"]) {
    for (size_t rank = 0; rank < expected["ranks"].size(); ++rank) {
      FullValidationSampler sampler(expected["total"].get<int64_t>(), static_cast<int64_t>(rank),
                                    expected["dp"].get<int64_t>());
      EXPECT_EQ(sampler.num_batches(), expected["ranks"][rank]["length"].get<int64_t>());
      EXPECT_EQ(drain(sampler), expected["ranks"][rank]["batches"].get<Batches>());
    }
  }
}

TEST(Samplers, ContinueWithTheBatchTheyWouldHaveGivenOnEveryRankOfAnyDataParallelSize) {
  static constexpr int64_t kTotal = 61;
  using Make = std::function<std::unique_ptr<Sampler>(int64_t consumed, const DataParallelSlice& slice)>;
  const std::vector<Make> makes = {[](int64_t consumed, const DataParallelSlice& slice) {
                                     return std::make_unique<SingleSampler>(kTotal, consumed, slice, true);
                                   },
                                   [](int64_t consumed, const DataParallelSlice& slice) {
                                     return std::make_unique<CyclicSampler>(kTotal, consumed, slice, true);
                                   },
                                   [](int64_t consumed, const DataParallelSlice& slice) {
                                     return std::make_unique<CyclicSampler>(kTotal, consumed, slice, false);
                                   }};
  for (size_t kind = 0; kind < makes.size(); ++kind)
    for (const int64_t size : {1, 2, 3, 5})
      for (int64_t rank = 0; rank < size; ++rank)
        for (int64_t steps = 0; steps < 6; ++steps) {
          const DataParallelSlice slice = {.micro_batch_size = 2, .rank = rank, .size = size};
          const std::unique_ptr<Sampler> whole = makes[kind](0, slice);
          std::vector<int64_t> expected, indices;
          for (int64_t i = 0; i < steps; ++i) whole->next(indices);
          const std::unique_ptr<Sampler> resumed = makes[kind](whole->consumed_samples(), slice);
          for (int i = 0; i < 70; ++i) {  // the cyclic ones go through several passes
            EXPECT_EQ(whole->next(expected), resumed->next(indices));
            EXPECT_EQ(indices, expected) << "sampler " << kind << ", rank " << rank << " of " << size;
          }
        }
}

TEST(Samplers, GoOnFromTheirConsumedSamplesWhateverTheBatchSize) {
  const DataParallelSlice slice = {.micro_batch_size = 3, .rank = 1, .size = 2};
  for (int64_t steps : {0, 1, 5, 17, 40}) {
    CyclicSampler whole(50, 0, slice, true);
    std::vector<int64_t> expected, indices;
    for (int64_t i = 0; i < steps; ++i) whole.next(indices);
    CyclicSampler resumed(50, whole.consumed_samples(), slice, true);
    for (int i = 0; i < 20; ++i) {
      whole.next(expected);
      resumed.next(indices);
      EXPECT_EQ(indices, expected);
    }
  }
  // The single sampler's samples depend on nothing but the position: another layout takes the same set.
  std::vector<int64_t> seen, indices;
  SingleSampler first(60, 0, {.micro_batch_size = 4, .rank = 0, .size = 1}, true);
  for (int i = 0; i < 3; ++i) {
    first.next(indices);
    seen.insert(seen.end(), indices.begin(), indices.end());
  }
  std::vector<SingleSampler> ranks;
  for (int64_t rank : {0, 1, 2}) ranks.emplace_back(60, first.consumed_samples(), DataParallelSlice{2, rank, 3}, true);
  for (int i = 0; i < 8; ++i) {
    for (SingleSampler& sampler : ranks) {
      sampler.next(indices);
      seen.insert(seen.end(), indices.begin(), indices.end());
    }
  }
  std::vector<int64_t> all(60);
  std::iota(all.begin(), all.end(), int64_t{0});
  EXPECT_EQ(seen, all);
}

TEST(Samplers, RejectImpossibleSlices) {
  EXPECT_THROW(SingleSampler(10, 0, {.micro_batch_size = 0}, true), ConfigError);
  EXPECT_THROW(SingleSampler(10, 0, {.micro_batch_size = 1, .rank = 2, .size = 2}, true), ConfigError);
  EXPECT_THROW(CyclicSampler(10, 0, {.micro_batch_size = 1, .rank = -1, .size = 2}, true), ConfigError);
  EXPECT_THROW(FullValidationSampler(10, 3, 3), ConfigError);
}

}  // namespace
}  // namespace megatron
