#include "megatron/transformer/layer_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "megatron/base/error.h"
#include "megatron/transformer/transformer_config.h"

namespace megatron {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr LayerKind kDense{}, kExperts{Mixer::kSelfAttention, FeedForward::kExperts};
constexpr LayerKind kAttentionAlone{Mixer::kSelfAttention, FeedForward::kNone},
    kFeedForwardAlone{Mixer::kNone, FeedForward::kDense};

/// Valid, and small.
TransformerConfig layers(int64_t num_layers) {
  TransformerConfig config;
  config.num_layers = num_layers;
  config.hidden_size = 8;
  config.ffn_hidden_size = 12;
  config.num_attention_heads = config.num_query_groups = 2;
  config.kv_channels = 4;
  config.vocab_size = config.padded_vocab_size = 20;
  config.max_sequence_length = 5;
  return config;
}
TransformerConfig with_experts(int64_t num_layers, const LayerPattern& layer_freq) {
  TransformerConfig config = layers(num_layers);
  config.moe = MoeConfig{.num_experts = 4, .layer_freq = layer_freq, .ffn_hidden_size = 6};
  config.validate();
  return config;
}

std::vector<int64_t> layers_with_experts(const TransformerConfig& config) {
  const LayerPlan plan(config);
  std::vector<int64_t> numbers;
  for (int64_t number = 1; number <= plan.num_layers(); ++number)
    if (plan.at(number).feed_forward == FeedForward::kExperts) numbers.push_back(number);
  return numbers;
}

TEST(LayerPlan, OfADenseModelIsOneRunWhateverItsDepth) {
  const LayerPlan plan(layers(100'000'000));
  EXPECT_THAT(plan.runs(), ElementsAre(LayerPlan::Run{kDense, 100'000'000}));
  EXPECT_EQ(plan.at(1), kDense);
  EXPECT_EQ(plan.num_residual_blocks(), 200'000'000);
  EXPECT_TRUE(plan.stacks_layers());
}

// Megatron: layer i, from 0, has experts iff i % N == 0.
TEST(LayerPlan, AnIntervalOfExpertsBeginsWithTheFirstLayer) {
  EXPECT_THAT(layers_with_experts(with_experts(5, {.interval = 1, .per_layer = {}})), ElementsAre(1, 2, 3, 4, 5));
  EXPECT_THAT(layers_with_experts(with_experts(7, {.interval = 3, .per_layer = {}})), ElementsAre(1, 4, 7));
  EXPECT_THAT(layers_with_experts(with_experts(3, {.interval = 9, .per_layer = {}})), ElementsAre(1));
}

TEST(LayerPlan, AListNamesTheLayersWithExperts) {
  EXPECT_THAT(layers_with_experts(with_experts(5, {.interval = 0, .per_layer = {0, 1, 1, 0, 1}})),
              ElementsAre(2, 3, 5));
}

// Megatron does the same: it looks at the option and not at the layers.
TEST(LayerPlan, StacksLayersInCheckpointsUnlessAnyIntervalOrListIsGiven) {
  EXPECT_TRUE(LayerPlan(with_experts(2, {.interval = 1, .per_layer = {}})).stacks_layers());
  EXPECT_FALSE(LayerPlan(with_experts(2, {.interval = 2, .per_layer = {}})).stacks_layers());
  EXPECT_FALSE(LayerPlan(with_experts(2, {.interval = 0, .per_layer = {1, 1}})).stacks_layers());
  TransformerConfig hybrid = layers(2);
  hybrid.layer_kinds = {kDense, kDense};
  EXPECT_FALSE(LayerPlan(hybrid).stacks_layers());
}

TEST(LayerPlan, LatentAttentionIsInAllLayers) {
  TransformerConfig config = with_experts(2, {.interval = 2, .per_layer = {}});
  config.mla = MlaConfig{};
  config.validate();
  const LayerPlan plan(config);
  EXPECT_EQ(plan.count(Mixer::kLatentAttention), 2);
  EXPECT_EQ(plan.count(FeedForward::kExperts), 1);
}

TEST(LayerPlan, PartsOfItAddUpToTheWhole) {
  TransformerConfig config = layers(9);
  config.layer_kinds = {kAttentionAlone,
                        kFeedForwardAlone,
                        kDense,
                        kDense,
                        kDense,
                        kExperts,
                        kExperts,
                        kAttentionAlone,
                        LayerKind{Mixer::kNone, FeedForward::kNone}};
  const LayerPlan plan(config);
  for (int64_t cut = 0; cut <= 9; ++cut) {
    const LayerPlan first = plan.part(0, cut), second = plan.part(cut, 9 - cut);
    EXPECT_EQ(first.num_layers() + second.num_layers(), 9);
    EXPECT_EQ(first.num_residual_blocks() + second.num_residual_blocks(), plan.num_residual_blocks());
    EXPECT_EQ(first.count(FeedForward::kDense) + second.count(FeedForward::kDense), 4);
    for (int64_t number = 1; number <= 9; ++number)
      EXPECT_EQ(number <= cut ? first.at(number) : second.at(number - cut), config.layer_kinds[number - 1]);
  }
  EXPECT_EQ(plan.num_residual_blocks(), 2 * 9 - 5);
  EXPECT_THROW(plan.at(0), InternalError);
  EXPECT_THROW(plan.at(10), InternalError);
}

TEST(LayerPlan, KindsWithoutALayerAreRefusedByName) {
  for (const LayerKind& kind : {kDense, kExperts, kAttentionAlone, kFeedForwardAlone,
                                LayerKind{Mixer::kLatentAttention, FeedForward::kExperts}})
    EXPECT_NO_THROW(require_can_build(kind));
  EXPECT_THAT(
      [] {
        require_can_build({Mixer::kStateSpace, FeedForward::kExperts});
      },
      ThrowsMessage<NotSupported>(HasSubstr("and experts")));
  for (const Mixer mixer : {Mixer::kStateSpace, Mixer::kLinearAttention})
    EXPECT_THROW(require_can_build({mixer, FeedForward::kNone}), NotSupported);
}

TEST(TransformerConfig, ReportsTheMistakesOfItsNestedConfigsTogether) {
  TransformerConfig config = layers(3);
  config.moe = MoeConfig{.num_experts = 4, .layer_freq = {.interval = 0, .per_layer = {0, 1}}, .topk = {.topk = 5}};
  config.mla = MlaConfig{.q_lora_rank = 0};
  config.ssm.head_dim = 0;
  config.mtp.num_layers = -1;
  EXPECT_THAT(
      [&] { config.validate(); },
      ThrowsMessage<ConfigError>(
          AllOf(HasSubstr("ffn_hidden_size is 0"), HasSubstr("topk 5 is not between 1 and the 4 experts"),
                HasSubstr("moe.layer_freq has interval 0 and 2 entries for 3 layers"),
                HasSubstr("mla.q_lora_rank is 0"), HasSubstr("ssm.head_dim is 0"), HasSubstr("mtp.num_layers is -1"))));
}

TEST(TransformerConfig, RefusesAListOfKindsThatFitsNoModel) {
  TransformerConfig config = layers(2);
  config.layer_kinds = {kDense};
  EXPECT_THAT([&] { config.validate(); }, ThrowsMessage<ConfigError>(HasSubstr("layer_kinds has 1 entries for 2")));
  config.layer_kinds = {kExperts, {Mixer::kLatentAttention, FeedForward::kNone}};
  EXPECT_THAT([&] { config.validate(); },
              ThrowsMessage<ConfigError>(AllOf(HasSubstr("layer_kinds has experts, and moe is not set"),
                                               HasSubstr("layer_kinds has latent attention, and mla is not set"))));
}

}  // namespace
}  // namespace megatron
