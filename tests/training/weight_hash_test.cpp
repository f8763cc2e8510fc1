#include "megatron/training/weight_hash.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "megatron/training/config/layouts.h"
#include "tests/testing/rank_threads.h"
#include "tests/training/small_trainer.h"

namespace megatron {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// The errors of 2 x 2 ranks if rank `faulty` has changed one bit of a weight.
std::string found_on_rank(int faulty) {
  std::string text;
  try {
    testing::run_ranks(4, [&](testing::RankContext& rank) {
      const PretrainConfig config = testing::small_config(testing::gpt2_like("--tensor-model-parallel-size 2"), 4);
      Trainer trainer(config, {.groups = ProcessGroupCollection::make(rank.world, parallel_layout_of(config))});
      if (rank.rank == faulty) {
        Parameter& parameter = *trainer.model().stage_parameters().front().at(2);
        parameter.value().data<float>()[3] *= -1;
      }
      require_equal_replicas(trainer);
    });
  } catch (const Error& error) {
    text = error.what();
  }
  return text;
}

TEST(WeightHash, IsTheSameOnAllReplicas) { EXPECT_EQ(found_on_rank(-1), ""); }

TEST(WeightHash, NamesTheParameterAndTheRanksThatDiffer) {
  EXPECT_THAT(found_on_rank(3), AllOf(HasSubstr("decoder."), HasSubstr("on rank 3 is not that of rank 1. Replicas")));
  EXPECT_THAT(found_on_rank(0), HasSubstr("on rank 2 is not that of rank 0"));
}

}  // namespace
}  // namespace megatron
