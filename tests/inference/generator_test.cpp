#include "megatron/inference/generator.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "megatron/models/gpt/gpt_model.h"
#include "tests/testing/test_device.h"
#include "tests/testing/tolerance.h"

namespace megatron::testing {
namespace {

TransformerConfig config_of(PositionEmbeddingType positions) {
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
  config.params_dtype = DType::kFloat64;
  config.init_method_std = config.embedding_init_method_std = 0.5;
  config.window_size = {{4, 0}};
  config.window_attn_skip_freq.interval = 2;
  return config;
}

struct TestModel {
  explicit TestModel(PositionEmbeddingType positions)
      : ctx(test.context()), model({.ctx = ctx, .config = config_of(positions), .groups = groups, .path = ""}) {
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
