// A model whose layers are of several kinds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "megatron/models/gpt/gpt_model.h"
#include "tests/testing/test_device.h"

namespace megatron {
namespace {

using ::testing::ElementsAre;

constexpr int64_t kRows = 6, kSamples = 2, kVocabulary = 30;

TransformerConfig two_layers() {
  TransformerConfig config;
  config.num_layers = 2;
  config.hidden_size = 12;
  config.ffn_hidden_size = 20;
  config.num_attention_heads = config.num_query_groups = 3;
  config.kv_channels = 4;
  config.vocab_size = config.padded_vocab_size = kVocabulary;
  config.max_sequence_length = kRows;
  config.params_dtype = DType::kFloat64;
  config.hidden_dropout = config.attention_dropout = 0;  // masks go by the numbers of layers
  return config;
}

/// The same network with attention and feed-forward in layers of their own.
TransformerConfig four_halves() {
  TransformerConfig config = two_layers();
  config.num_layers = 4;
  for (int i = 0; i < 2; ++i) {
    config.layer_kinds.push_back({Mixer::kSelfAttention, FeedForward::kNone});
    config.layer_kinds.push_back({Mixer::kNone, FeedForward::kDense});
  }
  return config;
}

struct Model {
  explicit Model(const TransformerConfig& config)
      : gpt({.ctx = ctx, .config = config, .groups = ProcessGroupCollection::single(), .path = ""}) {
    const std::vector<Parameter*> parameters = gpt.parameters();
    for (size_t i = 0; i < parameters.size(); ++i)
      testing::fill_uniform(ctx, parameters[i]->value(), fmt::format("parameter {}", i));
  }
  std::vector<double> logits(int64_t first, int64_t length, const LayerStates* states) {
    const auto layout = SequenceLayout::uniform(ctx, {.s = length, .b = kSamples, .first_position = first});
    return testing::values_of(gpt.logits(ctx, tokens.slice(0, first, length), layout, states));
  }

  testing::TestDevice test{DeviceKind::kCpu, 1};
  Context ctx = test.context();
  GptModel gpt;
  Tensor tokens = testing::uniform_integers(ctx, {kRows, kSamples}, kVocabulary);
};

std::vector<std::string> segment_names(const Model& model) {
  const Batches none = [](int) -> const Batch& { throw InternalError("no data"); };
  const std::vector<Chunk> chunks = model.gpt.chunks(none);
  std::vector<std::string> names;
  for (const Segment& segment : chunks.at(0)) names.push_back(segment.name);
  return names;
}

TEST(LayerKinds, HalvesOfLayersGiveTheBitsOfWholeOnes) {
  Model whole(two_layers()), halves(four_halves());
  ASSERT_EQ(whole.gpt.parameters().size(), halves.gpt.parameters().size());
  EXPECT_EQ(whole.logits(0, kRows, nullptr), halves.logits(0, kRows, nullptr));
}

std::vector<std::string> stored_names(const Model& model, const char* end) {
  std::vector<std::string> names;
  for (const Parameter* parameter : model.gpt.parameters()) {
    const StoredName& stored = parameter->options().stored;
    if (stored.key.ends_with(end))
      names.push_back(stored.layer ? fmt::format("{} [{}]", stored.key, *stored.layer) : stored.key);
  }
  return names;
}

// Megatron: one tensor for the layers of a homogeneous model, else the layer's number in each name.
TEST(LayerKinds, ChangeTheNamesInCheckpoints) {
  EXPECT_THAT(stored_names(Model(two_layers()), "layer_norm_bias"),
              ElementsAre("decoder.layers.self_attention.linear_qkv.layer_norm_bias [0]",
                          "decoder.layers.mlp.linear_fc1.layer_norm_bias [0]",
                          "decoder.layers.self_attention.linear_qkv.layer_norm_bias [1]",
                          "decoder.layers.mlp.linear_fc1.layer_norm_bias [1]"));
  EXPECT_THAT(stored_names(Model(four_halves()), "layer_norm_bias"),
              ElementsAre("decoder.layers.0.self_attention.linear_qkv.layer_norm_bias",
                          "decoder.layers.1.mlp.linear_fc1.layer_norm_bias",
                          "decoder.layers.2.self_attention.linear_qkv.layer_norm_bias",
                          "decoder.layers.3.mlp.linear_fc1.layer_norm_bias"));
}

TEST(LayerKinds, LayersWithoutAttentionKeepNothingBetweenTokens) {
  Model whole(two_layers()), halves(four_halves());
  const LayerStateSizes sizes{.max_rows = kRows, .b = kSamples};
  const LayerStates of_whole = whole.gpt.make_states(whole.ctx, sizes),
                    of_halves = halves.gpt.make_states(halves.ctx, sizes);
  ASSERT_EQ(of_halves.size(), 4);
  EXPECT_EQ(of_halves[1], nullptr);
  for (int64_t first = 0; first < kRows; ++first)
    EXPECT_EQ(whole.logits(first, 1, &of_whole), halves.logits(first, 1, &of_halves)) << first;
}

TEST(LayerKinds, SegmentsOfAStageAreThePartsOfItsLayers) {
  EXPECT_THAT(segment_names(Model(two_layers())), ElementsAre("embedding", "layer 0 self_attention", "layer 0 mlp",
                                                              "layer 1 self_attention", "layer 1 mlp", "head"));
  TransformerConfig config = four_halves();
  config.layer_kinds[2].mixer = Mixer::kNone;
  EXPECT_THAT(segment_names(Model(config)),
              ElementsAre("embedding", "layer 0 self_attention", "layer 1 mlp", "layer 3 mlp", "head"));
  config.recompute_granularity = RecomputeGranularity::kFull;
  config.recompute_method = RecomputeMethod::kBlock;
  config.recompute_num_layers = 1;
  EXPECT_THAT(segment_names(Model(config)),
              ElementsAre("embedding", "layers 0..0", "layer 1 mlp", "layer 3 mlp", "head"));
}

TEST(LayerKinds, ThatCannotBeBuiltAreRefused) {
  TransformerConfig state_space = four_halves();
  state_space.layer_kinds[0].mixer = Mixer::kStateSpace;
  EXPECT_THROW(Model{state_space}, NotSupported);
}

}  // namespace
}  // namespace megatron
