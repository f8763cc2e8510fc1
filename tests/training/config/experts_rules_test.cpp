// Flags of mixtures of experts: what they become, and which of them contradict each other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "megatron/training/config/differences.h"
#include "megatron/training/config/fields.h"
#include "megatron/transformer/layer_plan.h"
#include "tests/training/config/command_line.h"

namespace megatron {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::parse;
using testing::refusal;
using ::testing::UnorderedElementsAre;
using testing::with;
using testing::Words;
using testing::words_of;

std::string refusal_of_experts(const std::string& words, int world_size = 1) {
  return refusal(with(words_of("--num-experts 4 " + words)), world_size);
}

TEST(ExpertsRules, RefuseContradictionsWithTheReason) {
  const std::pair<const char*, const char*> cases[] = {
      {"--moe-router-topk 5", "--moe-router-topk 5 is above --num-experts 4"},
      {"--moe-router-topk 0", "--moe-router-topk 0: must be at least 1"},
      {"--moe-router-topk 1", "would learn nothing: give --moe-router-pre-softmax"},
      {"--moe-router-group-topk 1", "--moe-router-group-topk 1 needs --moe-router-num-groups"},
      {"--moe-router-num-groups 3 --moe-router-group-topk 1", "--num-experts 4 does not divide by"},
      {"--moe-router-num-groups 2 --moe-router-group-topk 3 --moe-router-topk 3", "is above --moe-router-num-groups 2"},
      {"--moe-router-num-groups 4 --moe-router-group-topk 3", "--moe-router-group-topk 3 is above --moe-router-topk 2"},
      {"--moe-router-num-groups 4 --moe-router-group-topk 1", "--moe-router-topk 2 is above the 1 experts in"},
      {"--moe-router-num-groups 2 --moe-router-group-topk 1 --moe-router-group-score-topk 3",
       "--moe-router-group-score-topk 3 is above the 2 experts of a group"},
      {"--moe-router-num-groups 65 --moe-router-group-topk 1", "--moe-router-num-groups 65: must be at most 64"},
      {"--moe-router-enable-expert-bias", "needs --moe-router-score-function sigmoid or sqrtsoftplus"},
      {"--moe-router-force-load-balancing --moe-router-force-biased 0.5", "exclude each other"},
      {"--moe-router-force-biased -1", "--moe-router-force-biased -1: must be at least 0"},
      {"--moe-apply-probs-on-input", "needs --moe-router-topk 1, not 2"},
      {"--moe-router-load-balancing-type aux_loss seq_aux_loss", "has 2 values and --moe-aux-loss-coeff has 1"},
      {"--moe-aux-loss-coeff 0.1 0.2", "has 1 values and --moe-aux-loss-coeff has 2"},
      {"--moe-aux-loss-coeff -0.1", "--moe-aux-loss-coeff -0.1: must be at least 0"},
      {"--moe-router-load-balancing-type aux_loss aux_loss --moe-aux-loss-coeff 1 2", "names aux_loss twice"},
      {"--moe-router-load-balancing-type sinkhorn aux_loss --moe-aux-loss-coeff 0 1", "sinkhorn excludes other types"},
      {"--moe-router-load-balancing-type sinkhorn --moe-aux-loss-coeff 0.1",
       "--moe-aux-loss-coeff does not go with --moe-router-load-balancing-type sinkhorn"},
      {"--moe-router-load-balancing-type quantile_balancing --moe-aux-loss-coeff 0.1",
       "--moe-aux-loss-coeff does not go with --moe-router-load-balancing-type quantile_balancing"},
      {"--moe-router-load-balancing-type sinkhorn --moe-expert-capacity-factor 1.5",
       "--moe-expert-capacity-factor 1.5 does not go with"},
      {"--moe-router-load-balancing-type quantile_balancing --moe-router-topk 4",
       "needs --moe-router-topk below --num-experts; both are 4"},
      {"--moe-router-load-balancing-type quantile_balancing --moe-router-num-groups 2 --moe-router-group-topk 1",
       "does not go with --moe-router-group-topk"},
      {"--moe-router-load-balancing-type even", "must be one of"},
      {"--moe-expert-capacity-factor 0", "leaves no expert a token"},
      {"--moe-pad-expert-input-to-capacity", "needs --moe-expert-capacity-factor: there is no capacity"},
      {"--moe-layer-freq [1,0]", "--moe-layer-freq lists 2 layers, --num-layers is 4"},
      {"--moe-layer-freq [0]*4", "gives no layer experts: each of its 4 entries is 0"},
      {"--moe-layer-freq often", "--moe-layer-freq often"},
      {"--moe-shared-expert-intermediate-size 8", "needs --disable-bias-linear"},
      {"--moe-shared-expert-gate", "needs --moe-shared-expert-intermediate-size"},
      {"--disable-bias-linear --moe-shared-expert-intermediate-size 8 --moe-shared-expert-overlap",
       "--moe-shared-expert-overlap needs --moe-token-dispatcher-type alltoall or flex, not allgather"},
      {"--moe-router-quantile-balancing-ema 1", "must be below 1"},
      {"--moe-input-jitter-eps -0.1", "--moe-input-jitter-eps -0.1: must be at least 0"},
      {"--moe-expert-rank-capacity-factor 0", "--moe-expert-rank-capacity-factor 0: must be above 0"},
      {"--moe-token-dispatcher-type alltoall_seq", "must be one of"},
      {"--disable-bias-linear --moe-use-upcycling", "--moe-use-upcycling needs --load or --pretrained-checkpoint"},
      {"--load dense --moe-use-upcycling", "--moe-use-upcycling needs --disable-bias-linear"},
      {"--disable-bias-linear --load dense --moe-use-upcycling --moe-upcycling-granularity 3",
       "--num-experts 4 does not divide by --moe-upcycling-granularity 3"},
      {"--disable-bias-linear --load dense --moe-use-upcycling --moe-upcycling-granularity 2 --moe-ffn-hidden-size 5",
       "is not --moe-upcycling-granularity 2 times --moe-ffn-hidden-size 5"},
      {"--disable-bias-linear --load dense --moe-use-upcycling --moe-layer-freq 2", "needs experts in every layer"},
      {"--moe-latent-size 0", "--moe-latent-size 0: must be at least 1"}};
  for (const auto& [words, text] : cases) {
    SCOPED_TRACE(words);
    EXPECT_THAT(refusal_of_experts(words), HasSubstr(text));
  }
}

/// Functional tests of Megatron-LM train with it.
TEST(ExpertsRules, TakeOneExpertWithSinkhornWhichHasASigmoidForIt) {
  const PretrainConfig config = parse(
      words_of("--num-experts 4 --moe-router-topk 1 --moe-router-load-balancing-type sinkhorn --moe-aux-loss-coeff 0"));
  EXPECT_EQ(config.transformer.moe.value().topk.topk, 1);
}

TEST(ExpertsRules, FlagsThatTheKindOfBalanceDoesNotReadAreNamed) {
  const auto idle = [](const std::string& words) {
    return idle_settings(parse(words_of("--num-experts 4 --moe-router-score-function sigmoid " + words)));
  };
  EXPECT_THAT(idle(""), IsEmpty());
  EXPECT_THAT(idle("--moe-router-load-balancing-type sinkhorn --moe-router-topk-scaling-factor 2 "
                   "--moe-router-enable-expert-bias"),
              UnorderedElementsAre(HasSubstr("--moe-router-score-function has no effect without --num-experts and "),
                                   HasSubstr("--moe-router-topk-scaling-factor has no effect without "),
                                   HasSubstr("--moe-router-enable-expert-bias has no effect without ")));
  EXPECT_THAT(idle("--moe-router-load-balancing-type none --moe-aux-loss-coeff 0.1"),
              ElementsAre(HasSubstr("--moe-aux-loss-coeff has no effect without ")));
}

TEST(ExpertsRules, ReportAllMistakesTogether) {
  const std::string text = refusal_of_experts("--moe-router-topk 9 --moe-shared-expert-gate --moe-layer-freq [1]");
  for (const char* part : {"--moe-router-topk 9 is above", "--moe-shared-expert-gate needs", "lists 1 layers"})
    EXPECT_THAT(text, HasSubstr(part));
}

TEST(ExpertsRules, ExpertsMustFitTheirRanks) {
  EXPECT_THAT(refusal(with({"--expert-model-parallel-size", "2"}), 2), HasSubstr("give --num-experts"));
  struct Case {
    const char *words, *text;
    int world_size;
  };
  const Case cases[] = {
      {"--expert-model-parallel-size 3", "Give --num-experts 6", 3},
      {"--expert-model-parallel-size 0", "--expert-model-parallel-size 0: must be at least 1", 1},
      {"--expert-tensor-parallel-size 0", "--expert-tensor-parallel-size 0: must be at least 1", 1},
      {"--expert-model-parallel-size 2",
       "1 rank does not divide by expert 2 * expert tensor 1 * pipeline 1 = 2: all experts together need as many. "
       "Start "
       "2 ranks",
       1},
      {"--expert-model-parallel-size 4 --pipeline-model-parallel-size 2",
       "4 ranks do not divide by expert 4 * expert tensor 1 * pipeline 2 = 8", 4},
      {"--disable-bias-linear --tensor-model-parallel-size 2 --sequence-parallel --expert-model-parallel-size 2",
       "2 ranks do not divide by expert 2 * expert tensor 2 * pipeline 1 = 4", 2},
      {"--expert-tensor-parallel-size 2", "experts with biases cannot be cut over --expert-tensor-parallel-size 2", 2},
      {"--disable-bias-linear --expert-tensor-parallel-size 2 --moe-ffn-hidden-size 15",
       "--moe-ffn-hidden-size 15 does not divide by --expert-tensor-parallel-size 2: each rank owns an equal part of "
       "every expert. Give --moe-ffn-hidden-size 16",
       2},
      {"--disable-bias-linear --tensor-model-parallel-size 2 --sequence-parallel "
       "--moe-shared-expert-intermediate-size 15",
       "--moe-shared-expert-intermediate-size 15 does not divide by --tensor-model-parallel-size 2", 2},
      {"--disable-bias-linear --tensor-model-parallel-size 2",
       "--num-experts with --tensor-model-parallel-size 2 needs --sequence-parallel", 2},
      {"--expert-model-parallel-size 4 --use-distributed-optimizer --num-distributed-optimizer-instances 2",
       "does not divide the 1 replicas of the experts, 4 ranks / (expert 4 * expert tensor 1 * pipeline 1)", 4},
      {"--expert-model-parallel-size 2 --pipeline-model-parallel-size 2 --use-tp-pp-dp-mapping",
       "--use-tp-pp-dp-mapping needs as many replicas of the experts as of the rest", 4}};
  for (const auto& [words, text, world_size] : cases) {
    SCOPED_TRACE(words);
    EXPECT_THAT(refusal_of_experts(words, world_size), HasSubstr(text));
  }
}

TEST(ExpertsRules, WhatRanksCanShareRuns) {
  const auto runs = [](const std::string& words, int world_size) {
    EXPECT_NO_THROW(require_runnable(parse(words_of("--num-experts 4 " + words), world_size))) << words;
  };
  runs("", 2);
  runs("--pipeline-model-parallel-size 2", 2);
  runs("--expert-model-parallel-size 2", 4);
  runs("--disable-bias-linear --tensor-model-parallel-size 2 --sequence-parallel", 2);
  runs(
      "--disable-bias-linear --tensor-model-parallel-size 2 --sequence-parallel --expert-model-parallel-size 4 "
      "--expert-tensor-parallel-size 1",
      4);
}

TEST(ExpertsRules, ABoundOfTokensIsRejectedWhereAStepCannotBeRepeated) {
  const auto refuses = [](const std::string& words, int world_size, const char* text) {
    const PretrainConfig config =
        parse(words_of("--num-experts 4 --expert-model-parallel-size 2 --moe-expert-rank-capacity-factor 1.5 " + words),
              world_size);
    EXPECT_THAT([&] { require_runnable(config); }, ::testing::ThrowsMessage<NotSupported>(HasSubstr(text)));
  };
  refuses("--use-distributed-optimizer --num-distributed-optimizer-instances 2", 4,
          "--moe-expert-rank-capacity-factor with --num-distributed-optimizer-instances above 1");
  refuses("--cuda-graph-impl full_iteration", 2, "--moe-expert-rank-capacity-factor with --cuda-graph-impl");
}

TEST(ExpertsRules, WithoutExpertsTheOtherFlagsHaveNoEffectAndTheBannerSaysSo) {
  const PretrainConfig config = parse({"--moe-router-topk", "4", "--moe-aux-loss-coeff", "0.1"});
  EXPECT_FALSE(config.transformer.moe);
  EXPECT_THAT(notes_block(config), HasSubstr("--moe-router-topk has no effect without --num-experts"));
  EXPECT_FALSE(parse({"--num-experts", "0"}).transformer.moe);
}

TEST(ExpertsConfig, BecomesTheConfigOfALayer) {
  const PretrainConfig config = parse(words_of(
      "--num-experts 8 --disable-bias-linear --moe-ffn-hidden-size 48 --moe-layer-freq [0]+[1]*3 --moe-router-topk 3"
      " --moe-router-score-function sigmoid --moe-router-enable-expert-bias --moe-router-bias-update-rate 0.01"
      " --moe-router-num-groups 4 --moe-router-group-topk 2 --moe-router-topk-scaling-factor 2.5"
      " --moe-router-load-balancing-type seq_aux_loss global_aux_loss --moe-aux-loss-coeff 0.1 0.2"
      " --moe-z-loss-coeff 1e-3 --moe-shared-expert-intermediate-size 24 --moe-shared-expert-gate"
      " --moe-expert-capacity-factor 1.5 --moe-token-drop-policy position --moe-router-dtype fp64"
      " --moe-token-dispatcher-type flex --moe-expert-rank-capacity-factor 1.25"));
  const MoeConfig& moe = config.transformer.moe.value();
  EXPECT_EQ(moe.num_experts, 8);
  EXPECT_EQ(moe.token_dispatcher_type, TokenDispatcherType::kFlex);
  EXPECT_EQ(moe.expert_rank_capacity_factor, 1.25);
  EXPECT_EQ(moe.ffn_hidden_size, 48);
  EXPECT_EQ(moe.topk.topk, 3);
  EXPECT_EQ(moe.topk.score, kernels::RouterScore::kSigmoid);
  EXPECT_EQ(moe.topk.num_groups, 4);
  EXPECT_EQ(moe.topk.group_topk, 2);
  EXPECT_EQ(moe.topk.scaling_factor, 2.5);
  EXPECT_TRUE(moe.enable_expert_bias);
  EXPECT_EQ(moe.bias_update_rate, 0.01);
  ASSERT_EQ(moe.load_balancing.size(), 2);
  EXPECT_EQ(moe.load_balancing[1].type, LoadBalancingType::kGlobalAuxLoss);
  EXPECT_EQ(moe.load_balancing[1].aux_loss_coeff, 0.2);
  EXPECT_EQ(moe.z_loss_coeff, 1e-3);
  EXPECT_EQ(moe.shared_expert_intermediate_size, 24);
  EXPECT_TRUE(moe.shared_expert_gate);
  EXPECT_EQ(moe.expert_capacity_factor, 1.5);
  EXPECT_EQ(moe.token_drop_policy, kernels::TokenDropPolicy::kPosition);
  EXPECT_EQ(moe.router_dtype, DType::kFloat64);
  EXPECT_TRUE(moe.calculate_per_token_loss);
  const LayerPlan plan(config.transformer);
  EXPECT_EQ(plan.count(FeedForward::kExperts), 3);
  EXPECT_EQ(plan.at(1).feed_forward, FeedForward::kDense);
}

TEST(ExpertsConfig, TakesItsDefaultsFromTheDenseModel) {
  const MoeConfig moe = parse({"--num-experts", "4", "--ffn-hidden-size", "80"}).transformer.moe.value();
  EXPECT_EQ(moe.ffn_hidden_size, 80);
  EXPECT_EQ(moe.topk.topk, 2);
  EXPECT_EQ(moe.topk.scaling_factor, 1);
  EXPECT_FALSE(moe.expert_capacity_factor);
  EXPECT_FALSE(moe.force_routing_bias_std);
  EXPECT_EQ(parse({"--num-experts", "4", "--moe-router-force-load-balancing"}).transformer.moe->force_routing_bias_std,
            0);
  EXPECT_FALSE(
      parse({"--num-experts", "4", "--moe-expert-capacity-factor", "-1"}).transformer.moe->expert_capacity_factor);
}

TEST(ExpertsConfig, TheOldFlagOfRecomputeIsAModule) {
  const Words old = words_of("--num-experts 4 --recompute-granularity selective --moe-layer-recompute");
  EXPECT_TRUE(parse(old).transformer.recomputes(RecomputeModule::kMoe));
  EXPECT_TRUE(parse(old).transformer.recomputes(RecomputeModule::kCoreAttn));
}

}  // namespace
}  // namespace megatron
