// Several ranks continue prompts as one rank does.
#include <gtest/gtest.h>

#include <numeric>

#include "megatron/inference/evaluator.h"
#include "megatron/inference/generator.h"
#include "megatron/models/gpt/gpt_model.h"
#include "megatron/models/model_family.h"
#include "tests/testing/rank_threads.h"
#include "tests/testing/test_device.h"
#include "tests/testing/tolerance.h"

namespace megatron::testing {
namespace {

struct RankSizes {
  int tp = 1, pp = 1, vpp = 1, ep = 1, etp = 1;

  int num_ranks() const { return std::lcm(tp, ep * etp) * pp; }
  std::string text() const { return fmt::format("tp={} pp={} vpp={} ep={} etp={}", tp, pp, vpp, ep, etp); }
};

TransformerConfig dense_config() {
  TransformerConfig config;
  config.num_layers = 4;
  config.hidden_size = 16;
  config.ffn_hidden_size = 24;
  config.num_attention_heads = 4;
  config.num_query_groups = 2;
  config.kv_channels = 4;
  config.vocab_size = 29;
  config.padded_vocab_size = 32;
  config.max_sequence_length = 14;
  config.position_embedding_type = PositionEmbeddingType::kRope;
  config.add_bias_linear = false;
  config.params_dtype = DType::kFloat64;
  config.init_method_std = config.embedding_init_method_std = 0.5;
  config.share_embeddings_and_output_weights = true;
  return config;
}

TransformerConfig expert_config(bool is_latent) {
  TransformerConfig config = dense_config();
  config.share_embeddings_and_output_weights = false;
  MoeConfig moe;
  moe.num_experts = 4;
  moe.layer_freq.interval = 2;
  moe.ffn_hidden_size = 8;
  moe.shared_expert_intermediate_size = is_latent ? 12 : 0;
  moe.topk.topk = 2;
  config.moe = moe;
  if (!is_latent) return config;
  config.num_query_groups = config.num_attention_heads;
  config.mla =
      MlaConfig{.q_lora_rank = 6, .kv_lora_rank = 5, .qk_head_dim = 4, .qk_pos_emb_head_dim = 2, .v_head_dim = 4};
  config.mla->rope_type = RopeType::kRope;
  return config;
}

GenerateOptions greedy_options() {
  return {.max_new_tokens = 5,
          .batch_size = 3,
          .sampling = {.temperature = 0},
          .scores_tokens = true,
          .scores_prompt = true,
          .num_top = 2};
}

const std::vector<std::vector<TokenId>> kPrompts = {{3, 17, 8, 28}, {5}, {1, 2, 3, 4, 5, 6, 7}, {9, 9}, {28, 0, 11}};

struct Written {
  std::vector<Continuation> continuations;
  std::vector<float> logits;  // of the third prompt
};

Written write_on(const TransformerConfig& config, const ProcessGroupCollection& groups, const PipelineLayout& layout) {
  TestDevice test(DeviceKind::kCpu, 1);
  Context ctx = test.context();
  GptModel model({.ctx = ctx, .config = config, .groups = groups, .path = "", .replicates_tokens = true}, layout);
  model.initialize(ctx);
  return {Generator(ctx, model).generate_all(kPrompts, greedy_options(), {}),
          Evaluator(ctx, model).logits(kPrompts[2])};
}

void expect_near(const std::vector<ScoredToken>& made, const std::vector<ScoredToken>& expected) {
  ASSERT_EQ(made.size(), expected.size());
  for (size_t i = 0; i < made.size(); ++i) {
    EXPECT_EQ(made[i].id, expected[i].id);
    EXPECT_NEAR(made[i].log_prob, expected[i].log_prob, tolerance(DType::kFloat64, 1000, 10));
    EXPECT_EQ(made[i].top[0].id, expected[i].top[0].id);
  }
}

void expect_same(const TransformerConfig& config, const RankSizes& sizes) {
  SCOPED_TRACE(sizes.text());
  const Written one = write_on(config, ProcessGroupCollection::single(), whole_layout(config));
  PipelineLayout layout = split_layers({.num_layers = config.num_layers, .placement = {sizes.pp, sizes.vpp}});
  layout.set_mtp_layers(layout.placement().num_stages() - 1, config.mtp.num_layers);
  ParallelSizes parallel{.world_size = sizes.num_ranks(),
                         .tensor_model_parallel_size = sizes.tp,
                         .pipeline_model_parallel_size = sizes.pp,
                         .expert_model_parallel_size = sizes.ep,
                         .expert_tensor_parallel_size = sizes.etp};
  if (!config.moe) parallel.expert_tensor_parallel_size.reset();
  run_ranks(sizes.num_ranks(), [&](RankContext& rank) {
    const Written made = write_on(config, ProcessGroupCollection::make(rank.world, ParallelLayout(parallel)), layout);
    for (size_t i = 0; i < kPrompts.size(); ++i) {
      SCOPED_TRACE(fmt::format("rank {}, prompt {}", rank.rank, i));
      expect_near(made.continuations[i].added, one.continuations[i].added);
      expect_near(made.continuations[i].prompt, one.continuations[i].prompt);
    }
    ASSERT_EQ(made.logits.size(), one.logits.size());
    for (size_t i = 0; i < one.logits.size(); ++i)
      EXPECT_NEAR(made.logits[i], one.logits[i], tolerance(DType::kFloat32, 1, 10));
  });
}

TEST(GeneratorRanks, ThatSharePipelineStagesWriteTheTokensOfOneRank) {
  for (const RankSizes& sizes :
       {RankSizes{.pp = 2}, RankSizes{.pp = 4}, RankSizes{.pp = 2, .vpp = 2}, RankSizes{.tp = 2, .pp = 2}})
    expect_same(dense_config(), sizes);
}

TEST(GeneratorRanks, ThatShareExpertsWriteTheTokensOfOneRank) {
  for (const bool is_latent : {false, true})
    for (const RankSizes& sizes :
         {RankSizes{.tp = 2}, RankSizes{.tp = 2, .etp = 2}, RankSizes{.ep = 4}, RankSizes{.tp = 2, .ep = 2},
          RankSizes{.tp = 2, .ep = 2, .etp = 2}, RankSizes{.tp = 2, .pp = 2, .ep = 2}})
      expect_same(expert_config(is_latent), sizes);
}

TEST(GeneratorRanks, LeaveOutTheLayersForFurtherTokens) {
  TransformerConfig config = dense_config();
  config.mtp.num_layers = 1;
  config.fp32_residual_connection = false;
  expect_same(config, {.pp = 2});
}

TEST(GeneratorRanks, NormalizeBeforeAStageThatPredictsFurtherTokens) {
  TransformerConfig config = dense_config();
  config.mtp.num_layers = 1;
  const Written one = write_on(config, ProcessGroupCollection::single(), whole_layout(config));
  PipelineLayout layout({3, 1}, {2, 2, 0});
  layout.set_mtp_layers(1, 1);
  run_ranks(3, [&](RankContext& rank) {
    const auto groups = ProcessGroupCollection::make(
        rank.world, ParallelLayout({.world_size = 3, .pipeline_model_parallel_size = 3, .embedding_ranks = {0, 1, 2}}));
    const Written made = write_on(config, groups, layout);
    for (size_t i = 0; i < kPrompts.size(); ++i) expect_near(made.continuations[i].added, one.continuations[i].added);
  });
}

}  // namespace
}  // namespace megatron::testing
