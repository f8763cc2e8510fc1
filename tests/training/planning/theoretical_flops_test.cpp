#include "megatron/training/planning/theoretical_flops.h"

#include <gtest/gtest.h>

#include <map>

#include "megatron/training/config/layer_pattern.h"
#include "megatron/training/config/pretrain_config.h"
#include "tests/testing/golden_json.h"

namespace megatron {
namespace {

using Json = nlohmann::json;
using Words = std::vector<std::string>;

// The settings of the golden cases beyond a dense model, by flag.
class Extras {
 public:
  // Takes the flags of features that this version does not have out of `words`.
  explicit Extras(Words& words) {
    Words rest;
    for (size_t i = 0; i < words.size(); ++i) {
      const bool extra = words[i].starts_with("--moe-") || words[i] == "--num-experts" ||
                         words[i] == "--mtp-num-layers" || words[i] == "--multi-latent-attention" ||
                         words[i].find("-lora-rank") != std::string::npos || words[i] == "--qk-head-dim" ||
                         words[i] == "--qk-pos-emb-head-dim" || words[i] == "--v-head-dim";
      if (!extra)
        rest.push_back(words[i]);
      else if (i + 1 < words.size() && !words[i + 1].starts_with("--"))
        values_[words[i]] = words[i + 1], ++i;
      else
        values_[words[i]] = "";
    }
    words = rest;
  }

  bool has(const std::string& flag) const { return values_.contains(flag); }
  int64_t number(const std::string& flag, int64_t otherwise) const {
    return has(flag) ? std::stoll(values_.at(flag)) : otherwise;
  }
  const std::string& text(const std::string& flag) const { return values_.at(flag); }

 private:
  std::map<std::string, std::string> values_;
};

/// The network of a run with the features that have no flags yet.
TransformerConfig network_of(const PretrainConfig& config, const Extras& extras) {
  TransformerConfig network = config.transformer;
  network.mtp.num_layers = extras.number("--mtp-num-layers", 0);
  if (extras.has("--num-experts")) {
    MoeConfig& moe = network.moe.emplace();
    moe.num_experts = extras.number("--num-experts", 0);
    moe.ffn_hidden_size = extras.number("--moe-ffn-hidden-size", network.ffn_hidden_size);
    moe.topk.topk = extras.number("--moe-router-topk", moe.topk.topk);
    moe.shared_expert_intermediate_size = extras.number("--moe-shared-expert-intermediate-size", 0);
    if (extras.has("--moe-latent-size")) moe.latent_size = extras.number("--moe-latent-size", 0);
    if (extras.has("--moe-layer-freq")) moe.layer_freq = parse_layer_pattern(extras.text("--moe-layer-freq"));
  }
  if (extras.has("--multi-latent-attention")) {
    MlaConfig& mla = network.mla.emplace();
    mla.kv_lora_rank = extras.number("--kv-lora-rank", mla.kv_lora_rank);
    mla.qk_head_dim = extras.number("--qk-head-dim", mla.qk_head_dim);
    mla.qk_pos_emb_head_dim = extras.number("--qk-pos-emb-head-dim", mla.qk_pos_emb_head_dim);
    mla.v_head_dim = extras.number("--v-head-dim", mla.v_head_dim);
    if (extras.has("--q-lora-rank")) mla.q_lora_rank = extras.number("--q-lora-rank", 0);
  }
  network.validate();
  return network;
}

TEST(TheoreticalFlops, AreMegatronsForEveryKindOfModel) {
  int counted = 0;
  for (const Json& test : testing::golden_json("training/flops.json", "cases")) {
    SCOPED_TRACE(test["name"].get<std::string>());
    Words words = test["args"];
    const Extras extras(words);
    const PretrainConfig config = parse_pretrain_gpt(words, test["world"]);
    EXPECT_EQ(config.transformer.padded_vocab_size, test["padded_vocab_size"].get<int64_t>());
    const TransformerConfig network = network_of(config, extras);
    EXPECT_DOUBLE_EQ(theoretical_flops(network, test["batch_size"].get<int64_t>(), config.model.seq_length.value()),
                     test["flops"].get<double>());
    ++counted;
    if (!test.contains("packed")) continue;
    double tokens = 0, squares = 0;
    for (double length : test["packed"]) tokens += length, squares += length * length;
    EXPECT_DOUBLE_EQ(theoretical_flops(network, tokens, squares), test["flops_packed"].get<double>());
  }
  EXPECT_GT(counted, 0);
}

TransformerConfig sizes_of(int64_t num_layers, int64_t hidden_size, int64_t num_heads, int64_t ffn_hidden_size) {
  TransformerConfig sizes;
  sizes.num_layers = num_layers;
  sizes.hidden_size = hidden_size;
  sizes.num_attention_heads = sizes.num_query_groups = num_heads;
  sizes.kv_channels = hidden_size / num_heads;
  sizes.ffn_hidden_size = ffn_hidden_size;
  return sizes;
}

// 6 * parameters per token, the rule of thumb, for sizes at which attention scores and embeddings hardly count.
TEST(TheoreticalFlops, AreAboutSixOperationsPerParameterAndToken) {
  TransformerConfig sizes = sizes_of(32, 4096, 32, 16384);
  sizes.padded_vocab_size = 128;
  const double parameters = 32.0 * 12 * 4096 * 4096;
  EXPECT_NEAR(theoretical_flops(sizes, int64_t{1}, int64_t{128}) / (6 * 128 * parameters), 1.0, 0.01);
}

TEST(TheoreticalFlops, LayersAndHeadOfTheCostModelAddUpToAllOperations) {
  TransformerConfig sizes = sizes_of(5, 48, 6, 131);
  sizes.num_query_groups = 2;
  sizes.gated_linear_unit = true;
  sizes.activation_func = ActivationFunc::kSilu;
  sizes.padded_vocab_size = 640;
  const LayerCosts costs = layer_costs_of(sizes, 100);
  TransformerConfig more = sizes;
  ++more.num_layers;
  const auto flops = [](const TransformerConfig& all) { return theoretical_flops(all, int64_t{1}, int64_t{100}); };
  const double layer = flops(more) - flops(sizes);
  EXPECT_NEAR(flops(sizes) / layer, 5 * costs.layer + costs.head, 1e-9);
  EXPECT_NEAR(costs.head * layer, 3 * 2.0 * 100 * 48 * 640, 1e-3);
  EXPECT_EQ(costs.embedding, 0);
  EXPECT_EQ(layer_costs_of({}, 100).head, 0);
}

/// Megatron's formula of a hybrid model, by hand: three times the forward of
///   state space  2 T h (2 d + 2 g N + heads) + 7 T d N + 2 T d h with d = 2 h,
///   attention    4 T h p (h + h g / n) + 2 S h p with p = d_head n / h,
///   feed-forward 4 T h f.
TEST(TheoreticalFlops, OfAHybridModelAreTheSumOfItsLayers) {
  constexpr double kTokens = 3 * 100, kSquares = 3 * 100 * 100, kH = 48, kF = 131, kInner = 2 * kH, kState = 16;
  TransformerConfig sizes = sizes_of(3, 48, 6, 131);
  sizes.ssm = {.state_dim = 16, .head_dim = 8, .num_groups = 2, .num_heads = {}};
  sizes.layer_kinds = {{Mixer::kStateSpace, FeedForward::kNone},
                       {Mixer::kSelfAttention, FeedForward::kNone},
                       {Mixer::kNone, FeedForward::kDense}};
  const double state_space = 2 * kTokens * kH * (2 * kInner + 2 * 2 * kState + kInner / 8) +
                             7 * kTokens * kInner * kState + 2 * kTokens * kInner * kH;
  const double attention = 4 * kTokens * kH * 2 * kH + 2 * kSquares * kH, feed_forward = 4 * kTokens * kH * kF;
  EXPECT_DOUBLE_EQ(theoretical_flops(sizes, int64_t{3}, int64_t{100}), 3 * (state_space + attention + feed_forward));
  sizes.layer_kinds[0].mixer = Mixer::kLinearAttention;
  EXPECT_THROW(theoretical_flops(sizes, int64_t{3}, int64_t{100}), NotSupported);
}

}  // namespace
}  // namespace megatron
