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

// What the golden cases give beyond a dense model, by flag.
class Extras {
 public:
  // Takes the flags of features that this version does not have out of `words`.
  explicit Extras(Words& words) {
    Words rest;
    for (size_t i = 0; i < words.size(); ++i) {
      const bool extra = words[i].starts_with("--moe-") || words[i] == "--num-experts" ||
                         words[i] == "--mtp-num-layers" || words[i] == "--multi-latent-attention" ||
                         words[i].find("-lora-rank") != std::string::npos || words[i] == "--qk-head-dim" ||
                         words[i] == "--qk-pos-emb-head-dim" || words[i] == "--v-head-dim" ||
                         words[i] == "--attention-output-gate";
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

void add_experts(FlopsSizes& sizes, const Extras& extras, int64_t num_layers) {
  std::vector<int64_t> is_moe(static_cast<size_t>(num_layers), 1);
  if (extras.has("--moe-layer-freq")) {
    const LayerPattern pattern = parse_layer_pattern(extras.text("--moe-layer-freq"));
    for (int64_t layer = 0; layer < num_layers; ++layer)
      is_moe[static_cast<size_t>(layer)] =
          pattern.interval > 0 ? layer % pattern.interval == 0 : pattern.per_layer[static_cast<size_t>(layer)];
  }
  is_moe.insert(is_moe.end(), static_cast<size_t>(sizes.mtp_num_layers), is_moe.back());
  sizes.num_dense_layers = sizes.num_moe_layers = 0;
  for (int64_t moe : is_moe) ++(moe != 0 ? sizes.num_moe_layers : sizes.num_dense_layers);
  sizes.moe_ffn_hidden_size = extras.number("--moe-ffn-hidden-size", sizes.ffn_hidden_size);
  sizes.moe_router_topk = extras.number("--moe-router-topk", 2);
  sizes.moe_shared_expert_intermediate_size = extras.number("--moe-shared-expert-intermediate-size", 0);
  if (extras.has("--moe-latent-size")) sizes.moe_latent_size = extras.number("--moe-latent-size", 0);
}

FlopsSizes sizes_of(const PretrainConfig& config, const Extras& extras) {
  FlopsSizes sizes = flops_sizes_of(config.transformer);
  sizes.attention_output_gate = extras.has("--attention-output-gate");
  sizes.mtp_num_layers = extras.number("--mtp-num-layers", 0);
  sizes.num_dense_layers += sizes.mtp_num_layers;
  if (extras.has("--num-experts")) add_experts(sizes, extras, config.transformer.num_layers);
  if (extras.has("--multi-latent-attention")) {
    sizes.latent_attention = LatentAttentionSizes{.q_lora_rank = {},
                                                  .kv_lora_rank = extras.number("--kv-lora-rank", 32),
                                                  .qk_head_dim = extras.number("--qk-head-dim", 128),
                                                  .qk_pos_emb_head_dim = extras.number("--qk-pos-emb-head-dim", 64),
                                                  .v_head_dim = extras.number("--v-head-dim", 128)};
    if (extras.has("--q-lora-rank")) sizes.latent_attention->q_lora_rank = extras.number("--q-lora-rank", 0);
  }
  return sizes;
}

TEST(TheoreticalFlops, AreMegatronsForEveryKindOfModel) {
  int counted = 0;
  for (const Json& test : testing::golden_json("training/flops.json", "cases")) {
    SCOPED_TRACE(test["name"].get<std::string>());
    Words words = test["args"];
    const Extras extras(words);
    const PretrainConfig config = parse_pretrain_gpt(words, test["world"]);
    EXPECT_EQ(config.transformer.padded_vocab_size, test["padded_vocab_size"].get<int64_t>());
    const FlopsSizes sizes = sizes_of(config, extras);
    EXPECT_DOUBLE_EQ(theoretical_flops(sizes, test["batch_size"].get<int64_t>(), config.model.seq_length.value()),
                     test["flops"].get<double>());
    ++counted;
    if (!test.contains("packed")) continue;
    double tokens = 0, squares = 0;
    for (double length : test["packed"]) tokens += length, squares += length * length;
    EXPECT_DOUBLE_EQ(theoretical_flops(sizes, tokens, squares), test["flops_packed"].get<double>());
  }
  EXPECT_GT(counted, 0);
}

// 6 * parameters per token, the rule of thumb, for sizes at which attention scores and embeddings hardly count.
TEST(TheoreticalFlops, AreAboutSixOperationsPerParameterAndToken) {
  const FlopsSizes sizes{.hidden_size = 4096,
                         .num_attention_heads = 32,
                         .num_query_groups = 32,
                         .kv_channels = 128,
                         .ffn_hidden_size = 16384,
                         .padded_vocab_size = 128,
                         .num_dense_layers = 32};
  const double parameters = 32.0 * 12 * 4096 * 4096;
  EXPECT_NEAR(theoretical_flops(sizes, int64_t{1}, int64_t{128}) / (6 * 128 * parameters), 1.0, 0.01);
}

TEST(TheoreticalFlops, LayersAndHeadOfTheCostModelAddUpToAllOperations) {
  FlopsSizes sizes;
  sizes.hidden_size = 48;
  sizes.num_attention_heads = 6;
  sizes.num_query_groups = 2;
  sizes.kv_channels = 8;
  sizes.ffn_hidden_size = 131;
  sizes.swiglu = true;
  sizes.num_dense_layers = 5;
  sizes.padded_vocab_size = 640;
  const LayerCosts costs = layer_costs_of(sizes, 100);
  FlopsSizes more = sizes;
  ++more.num_dense_layers;
  const auto flops = [](const FlopsSizes& all) { return theoretical_flops(all, int64_t{1}, int64_t{100}); };
  const double layer = flops(more) - flops(sizes);
  EXPECT_NEAR(flops(sizes) / layer, 5 * costs.layer + costs.head, 1e-9);
  EXPECT_NEAR(costs.head * layer, 3 * 2.0 * 100 * 48 * 640, 1e-3);
  EXPECT_EQ(costs.embedding, 0);
  EXPECT_EQ(layer_costs_of({}, 100).head, 0);
}

}  // namespace
}  // namespace megatron
