#include "megatron/inference/generator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "megatron/models/gpt/gpt_model.h"
#include "tests/testing/test_device.h"
#include "tests/testing/tolerance.h"

namespace megatron::testing {
namespace {

TransformerConfig config_of(PositionEmbeddingType positions, DType dtype) {
  TransformerConfig config;
  config.num_layers = 3;
  config.hidden_size = 20;
  config.ffn_hidden_size = 28;
  config.num_attention_heads = 5;
  config.num_query_groups = positions == PositionEmbeddingType::kRope ? 1 : 5;
  config.kv_channels = 4;
  config.vocab_size = 29;
  config.padded_vocab_size = 32;
  config.max_sequence_length = 12;
  config.position_embedding_type = positions;
  config.params_dtype = dtype;
  config.init_method_std = config.embedding_init_method_std = 0.5;
  config.window_size = {{4, 0}};
  config.window_attn_skip_freq.interval = 2;
  return config;
}

struct TestModel {
  explicit TestModel(PositionEmbeddingType positions, DType dtype = DType::kFloat64)
      : ctx(test.context()), model({.ctx = ctx, .config = config_of(positions, dtype), .groups = groups, .path = ""}) {
    model.initialize(ctx);
  }
  /// Logits of the last of `tokens` from one forward over all of them.
  std::vector<double> last_logits(const std::vector<TokenId>& tokens) {
    const auto s = static_cast<int64_t>(tokens.size());
    Tensor ids = ctx.empty("ids", {s, 1}, DType::kInt32, MemoryUse::kData);
    std::copy(tokens.begin(), tokens.end(), ids.data<int32_t>());
    const SequenceLayout layout = SequenceLayout::uniform(ctx, {.s = s, .b = 1});
    const std::vector<double> all = values_of(model.logits(ctx, ids, layout, nullptr));
    return {all.end() - 32, all.end() - 3};
  }
  TestDevice test;
  Context ctx;
  ProcessGroupCollection groups;
  GptModel model;
};

TEST(Generator, WithItsCacheWritesWhatFullForwardsWrite) {
  for (const auto positions : {PositionEmbeddingType::kRope, PositionEmbeddingType::kLearnedAbsolute}) {
    TestModel t(positions);
    std::vector<TokenId> text = {3, 17, 8, 28};
    const auto generated =
        Generator(t.ctx, t.model).generate(text, {.max_new_tokens = 6, .sampling = {.temperature = 0}}, {});
    ASSERT_EQ(generated.size(), 6U);
    for (TokenId id : generated) {
      const std::vector<double> logits = t.last_logits(text);
      const auto best = std::max_element(logits.begin(), logits.end());
      EXPECT_NEAR(logits[static_cast<size_t>(id)], *best, tolerance(DType::kFloat64, 100, 10));
      text.push_back(id);
    }
  }
}

std::vector<std::vector<TokenId>> prompts_of_many_lengths() {
  return {{3, 17, 8, 28}, {5}, {1, 2, 3, 4, 5, 6, 7}, {9, 9}, {28, 0, 11}, {20, 19, 18, 17, 16}};
}

struct Ids {
  std::vector<TokenId> added;
  std::vector<double> log_probs;
  bool operator==(const Ids&) const = default;
};
Ids ids_of(const Continuation& continuation) {
  Ids ids;
  for (const ScoredToken& token : continuation.added) {
    ids.added.push_back(token.id);
    ids.log_probs.push_back(token.log_prob);
  }
  return ids;
}

TEST(Generator, GivesTheSameBitsWhateverTheBatch) {
  for (const DType dtype : {DType::kFloat64, DType::kFloat32, DType::kBFloat16})
    for (const auto positions : {PositionEmbeddingType::kRope, PositionEmbeddingType::kLearnedAbsolute})
      for (const double temperature : {0.0, 1.0}) {
        TestModel t(positions, dtype);
        const auto prompts = prompts_of_many_lengths();
        GenerateOptions options{.max_new_tokens = 6, .sampling = {.temperature = temperature}, .scores_tokens = true};
        const Generator generator(t.ctx, t.model);
        std::vector<Ids> alone;
        for (const Continuation& each : generator.generate_all(prompts, options, {})) alone.push_back(ids_of(each));
        for (const int64_t batch_size : {2, 3, 6, 9}) {
          options.batch_size = batch_size;
          const auto together = generator.generate_all(prompts, options, {});
          ASSERT_EQ(together.size(), prompts.size());
          for (size_t i = 0; i < prompts.size(); ++i) {
            EXPECT_EQ(ids_of(together[i]), alone[i]) << "prompt " << i << ", batch " << batch_size;
            EXPECT_EQ(together[i].added.size(), std::min<size_t>(6, 12 - prompts[i].size()));
          }
        }
      }
}

TEST(Generator, DrawsAnotherContinuationForEachCopyOfAPrompt) {
  TestModel t(PositionEmbeddingType::kRope);
  const std::vector<std::vector<TokenId>> copies(8, {1, 2, 3});
  const auto drawn = Generator(t.ctx, t.model).generate_all(copies, {.max_new_tokens = 8, .batch_size = 4}, {});
  int num_changes = 0;
  for (size_t i = 1; i < copies.size(); ++i) num_changes += ids_of(drawn[i]).added != ids_of(drawn[0]).added;
  EXPECT_GT(num_changes, 5);
}

TEST(Generator, ScoresTokensByTheSoftmaxOfFullForwards) {
  TestModel t(PositionEmbeddingType::kRope);
  const auto prompts = prompts_of_many_lengths();
  const GenerateOptions options{.max_new_tokens = 4,
                                .batch_size = 3,
                                .sampling = {.temperature = 0.7, .top_k = 5},
                                .scores_tokens = true,
                                .scores_prompt = true,
                                .num_top = 3};
  const auto continuations = Generator(t.ctx, t.model).generate_all(prompts, options, {});
  for (size_t i = 0; i < prompts.size(); ++i) {
    std::vector<TokenId> text = {prompts[i][0]};
    std::vector<ScoredToken> scored = continuations[i].prompt;
    EXPECT_EQ(scored.size(), prompts[i].size() - 1);
    scored.insert(scored.end(), continuations[i].added.begin(), continuations[i].added.end());
    for (const ScoredToken& token : scored) {
      const std::vector<double> logits = t.last_logits(text);
      double sum = 0;
      for (const double logit : logits) sum += std::exp(logit);
      const auto bound = tolerance(DType::kFloat64, 100, 10);
      EXPECT_NEAR(token.log_prob, logits[static_cast<size_t>(token.id)] - std::log(sum), bound);
      ASSERT_EQ(token.top.size(), 3U);
      EXPECT_NEAR(token.top[0].log_prob, std::ranges::max(logits) - std::log(sum), bound);
      EXPECT_GE(token.top[0].log_prob, token.top[1].log_prob);
      EXPECT_GE(token.top[1].log_prob, token.top[2].log_prob);
      text.push_back(token.id);
    }
  }
}

TEST(Generator, SaysWhyEachContinuationEnded) {
  TestModel t(PositionEmbeddingType::kRope);
  const Generator generator(t.ctx, t.model);
  const std::vector<std::vector<TokenId>> prompts = {{1, 2, 3}, {4, 5}};
  GenerateOptions options{.max_new_tokens = 5, .batch_size = 2, .sampling = {.temperature = 0}};
  std::vector<int64_t> ended;
  GenerateHooks hooks{.on_token = [](int64_t prompt, TokenId) { return prompt != 1; },
                      .on_end = [&](int64_t prompt, const Continuation&) { ended.push_back(prompt); }};
  const auto stopped = generator.generate_all(prompts, options, hooks);
  EXPECT_EQ(stopped[0].reason, FinishReason::kLength);
  EXPECT_EQ(stopped[1].reason, FinishReason::kStop);
  EXPECT_EQ(stopped[1].added.size(), 1U);
  EXPECT_EQ(ended, (std::vector<int64_t>{1, 0}));
  options.stop_token = stopped[0].added[0].id;
  EXPECT_EQ(generator.generate_all(prompts, options, {})[0].reason, FinishReason::kEod);
}

TEST(Generator, EndsAtTheModelsLengthAtTheStopTokenAndAtTheLimit) {
  TestModel t(PositionEmbeddingType::kRope);
  Generator generator(t.ctx, t.model);
  EXPECT_EQ(generator.generate({1, 2, 3}, {.max_new_tokens = 100}, {}).size(), 9U);
  EXPECT_EQ(generator.generate({1, 2, 3}, {.max_new_tokens = 2}, {}).size(), 2U);
  const auto greedy = generator.generate({1, 2, 3}, {.max_new_tokens = 5, .sampling = {.temperature = 0}}, {});
  const auto stopped =
      generator.generate({1, 2, 3}, {.max_new_tokens = 5, .sampling = {.temperature = 0}, .stop_token = greedy[0]}, {});
  EXPECT_TRUE(stopped.empty());
}

TEST(Generator, RefusesEmptyLongAndUnknownPrompts) {
  TestModel t(PositionEmbeddingType::kRope);
  Generator generator(t.ctx, t.model);
  EXPECT_THROW(generator.generate({}, {}, {}), DataError);
  EXPECT_THROW(generator.generate(std::vector<TokenId>(12, 1), {}, {}), DataError);
  EXPECT_THROW(generator.generate({29}, {}, {}), DataError);
  EXPECT_EQ(t.test.device.arena.amount(MemoryUse::kActivations).live, 0);
}

}  // namespace
}  // namespace megatron::testing
