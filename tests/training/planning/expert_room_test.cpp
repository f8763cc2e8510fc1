#include "megatron/training/planning/expert_room.h"

#include <gtest/gtest.h>

#include "megatron/training/planning/step_plan.h"
#include "tests/testing/rank_places.h"
#include "tests/training/small_trainer.h"

namespace megatron {
namespace {

using testing::llama_like;
using testing::small_config;

PretrainConfig config_of(const std::string& more, int num_ranks = 8) {
  return small_config(llama_like(" --num-layers 4 --num-experts 8 --moe-router-topk 2 --moe-ffn-hidden-size 64 "
                                 "--micro-batch-size 1 --global-batch-size 8 --expert-model-parallel-size 8 "
                                 "--seq-length 512 --max-position-embeddings 512 " +
                                 more),
                      num_ranks);
}

int64_t planned_bytes(const PretrainConfig& config) {
  return plan_steps(config, 0, DeviceKind::kCpu, testing::places_on_hosts_of(8, 8)).memory.high_water;
}

PretrainConfig with_room_in(const PretrainConfig& config, int64_t bytes) {
  return with_expert_room(config, [bytes](const PretrainConfig& run) { return planned_bytes(run) <= bytes; });
}

TEST(ExpertRoom, IsForAnyRoutingWhereThatFits) {
  const PretrainConfig config = config_of("");
  const PretrainConfig chosen = with_room_in(config, planned_bytes(config));
  EXPECT_FALSE(chosen.transformer.moe->expert_rank_capacity_factor);
  EXPECT_EQ(expert_room_text(chosen), "");
}

TEST(ExpertRoom, IsTheMostThatFitsOtherwise) {
  for (const char* dispatcher : {"allgather", "alltoall"}) {
    SCOPED_TRACE(dispatcher);
    const PretrainConfig config = config_of(std::string("--moe-token-dispatcher-type ") + dispatcher);
    const int64_t unbounded = planned_bytes(config);
    double last = 8;
    int64_t least = unbounded;
    for (const double share : {0.9, 0.7, 0.5}) {
      const auto bytes = static_cast<int64_t>(static_cast<double>(unbounded) * share);
      const PretrainConfig chosen = with_room_in(config, bytes);
      if (!chosen.transformer.moe->expert_rank_capacity_factor) continue;  // weights and other layers alone take more
      EXPECT_LE(*chosen.transformer.moe->expert_rank_capacity_factor, last);
      EXPECT_LE(planned_bytes(chosen), bytes);
      last = *chosen.transformer.moe->expert_rank_capacity_factor;
      least = planned_bytes(chosen);
    }
    EXPECT_LT(least, unbounded);
    EXPECT_LT(last, 8) << "no share was too small for any routing";
  }
}

TEST(ExpertRoom, TakesMoreRoundsWhereARepeatedStepNeedsThem) {
  PretrainConfig one = config_of("--moe-expert-rank-capacity-factor 1.1"), many = one;
  many.transformer.moe->num_exact_rounds = 16;
  ASSERT_LT(planned_bytes(many), planned_bytes(one));
  const PretrainConfig chosen = with_room_in(one, planned_bytes(many));
  EXPECT_GT(chosen.transformer.moe->num_exact_rounds, 1);
  EXPECT_EQ(*chosen.transformer.moe->expert_rank_capacity_factor, 1.1);
  EXPECT_EQ(
      expert_room_text(chosen),
      fmt::format("experts: a rank has room for 1.1 times the tokens of balanced ones; a step with more is computed "
                  "again, exactly, in {} rounds",
                  chosen.transformer.moe->num_exact_rounds));
}

TEST(ExpertRoom, LeavesRunsAloneThatNeedNoneOrThatNothingMakesFit) {
  const auto never = [](const PretrainConfig&) { return false; };
  EXPECT_FALSE(with_expert_room(config_of(""), never).transformer.moe->expert_rank_capacity_factor);
  const auto asked = [](const PretrainConfig&) -> bool { throw std::logic_error("asked"); };
  EXPECT_NO_THROW(with_expert_room(small_config(llama_like()), asked));
}

}  // namespace
}  // namespace megatron
