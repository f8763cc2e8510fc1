#include "megatron/pipeline_parallel/stage_placement.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "megatron/base/error.h"

namespace megatron {
namespace {

TEST(StagePlacement, LoopGoesThroughAllRanksForEachChunk) {
  const StagePlacement placement(3, 2);
  EXPECT_EQ(placement.num_stages(), 6);
  EXPECT_EQ(placement.place_of(4), (StagePlace{.rank = 1, .chunk = 1}));
  EXPECT_EQ(placement.next({.rank = 2, .chunk = 0}), (StagePlace{.rank = 0, .chunk = 1}));
  EXPECT_EQ(placement.previous({.rank = 0, .chunk = 1}), (StagePlace{.rank = 2, .chunk = 0}));
  EXPECT_TRUE(placement.is_first({.rank = 0, .chunk = 0}));
  EXPECT_TRUE(placement.is_last({.rank = 2, .chunk = 1}));
}

TEST(StagePlacement, VTurnsBackAtTheLastRank) {
  const StagePlacement placement(4, 2, StageOrder::kV);
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(placement.stage_of({.rank = rank, .chunk = 0}), rank);
    EXPECT_EQ(placement.stage_of({.rank = rank, .chunk = 1}), 7 - rank);
  }
  EXPECT_EQ(placement.next({.rank = 3, .chunk = 0}), (StagePlace{.rank = 3, .chunk = 1})) << "the turn";
  EXPECT_TRUE(placement.is_last({.rank = 0, .chunk = 1}));
}

TEST(StagePlacement, EveryStageHasOnePlaceWhateverTheSizes) {
  for (const StageOrder order : {StageOrder::kLoop, StageOrder::kV})
    for (int ranks = 1; ranks <= 5; ++ranks)
      for (int chunks = 1; chunks <= 4; ++chunks) {
        const StagePlacement placement(ranks, chunks, order);
        std::set<int> seen;
        for (int rank = 0; rank < ranks; ++rank)
          for (int chunk = 0; chunk < chunks; ++chunk) {
            const int stage = placement.stage_of({.rank = rank, .chunk = chunk});
            EXPECT_EQ(placement.place_of(stage), (StagePlace{.rank = rank, .chunk = chunk}));
            EXPECT_TRUE(seen.insert(stage).second);
          }
        EXPECT_EQ(static_cast<int>(seen.size()), placement.num_stages());
      }
}

TEST(StagePlacement, RejectsEmptyPipelinesAndInvalidPlaces) {
  EXPECT_THROW(StagePlacement(0, 1), ConfigError);
  EXPECT_THROW(StagePlacement(1, 0), ConfigError);
  const StagePlacement placement(2, 2);
  EXPECT_THROW(placement.stage_of({.rank = 2, .chunk = 0}), InternalError);
  EXPECT_THROW(placement.stage_of({.rank = 0, .chunk = 2}), InternalError);
  EXPECT_THROW(placement.next({.rank = 1, .chunk = 1}), InternalError);
  EXPECT_THROW(placement.previous({.rank = 0, .chunk = 0}), InternalError);
}

}  // namespace
}  // namespace megatron
