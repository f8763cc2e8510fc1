// Names of tensors and extra states as Megatron's layers with Transformer Engine have them.
// Source: get_gpt_layer_with_transformer_engine_spec and get_gpt_mtp_block_spec of megatron-core 0.16.1.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "megatron/dist_checkpointing/checkpoint_reader.h"
#include "megatron/training/checkpoint/checkpointer.h"
#include "tests/testing/scratch_directory.h"
#include "tests/training/small_trainer.h"

namespace megatron {
namespace {

using ::testing::IsSupersetOf;
using ::testing::UnorderedElementsAreArray;
using Names = std::vector<std::string>;

/// Latent attention, and layers with a shared expert of two.
const std::string kModel = testing::gpt2_like(
    "--num-layers 2 --position-embedding-type rope --normalization RMSNorm --disable-bias-linear --swiglu "
    "--ffn-hidden-size 48 --untie-embeddings-and-output-weights --multi-latent-attention --q-lora-rank 8 "
    "--kv-lora-rank 8 --qk-head-dim 8 --qk-pos-emb-head-dim 4 --v-head-dim 8 --qk-layernorm --num-experts 2 "
    "--moe-router-topk 1 --moe-router-score-function sigmoid --moe-ffn-hidden-size 16 "
    "--moe-shared-expert-intermediate-size 16 --moe-shared-expert-gate ");

Names in(const std::string& place, const Names& names) {
  Names all;
  for (const std::string& name : names) all.push_back(place + name);
  return all;
}

Names operator+(Names names, const Names& more) {
  names.insert(names.end(), more.begin(), more.end());
  return names;
}

/// Modules with their parameters. The up projections contain the norms before them, as does a dense feed-forward.
const Names kAttention = {"input_layernorm.weight",
                          "self_attention.linear_q_down_proj.weight",
                          "self_attention.linear_q_up_proj.layer_norm_weight",
                          "self_attention.linear_q_up_proj.weight",
                          "self_attention.linear_kv_down_proj.weight",
                          "self_attention.linear_kv_up_proj.layer_norm_weight",
                          "self_attention.linear_kv_up_proj.weight",
                          "self_attention.linear_proj.weight"};
const Names kDense = {"mlp.linear_fc1.layer_norm_weight", "mlp.linear_fc1.weight", "mlp.linear_fc2.weight"};
const Names kExperts = {"pre_mlp_layernorm.weight",
                        "mlp.router.weight",
                        "mlp.experts.experts.linear_fc1.weight",
                        "mlp.experts.experts.linear_fc2.weight",
                        "mlp.shared_experts.linear_fc1.weight",
                        "mlp.shared_experts.linear_fc2.weight",
                        "mlp.shared_experts.gate_weight"};
const Names kFurther = {"enorm.weight", "hnorm.weight", "eh_proj.weight", "final_layernorm.weight"};

/// Every module of Transformer Engine has one; router, gate, embedding and output layer are Megatron's own.
Names states_of(const std::string& place, const Names& parameters) {
  std::set<std::string> states;
  for (const std::string& name : parameters) {
    const std::string module = name.substr(0, name.rfind('.'));
    if (module.ends_with("router") || module.ends_with("shared_experts")) continue;
    const bool is_of_experts = module.find("experts.experts") != std::string::npos;
    for (int expert = 0; expert < (is_of_experts ? 2 : 1); ++expert)
      states.insert(fmt::format("{}{}._extra_state/shard_{}_{}", place, module, expert, is_of_experts ? 2 : 1));
  }
  return {states.begin(), states.end()};
}

struct Saved {
  explicit Saved(const std::string& words) {
    const PretrainConfig config = testing::small_config(kModel + words + " --save-interval 1 --save " + path.path());
    Trainer trainer(config, {});
    Checkpointer(files, config, {}).save(trainer);
  }
  CheckpointReader reader() const { return {files, path.file("iter_0000000"), Verify::kChecksums}; }

  PosixFileSystem files;
  testing::ScratchDirectory path;
};

TEST(TransformerEngineNames, AreThoseOfLatentAttentionExpertsAndFurtherTokens) {
  const Saved saved("--moe-layer-freq [0,1] --mtp-num-layers 1 ");
  const CheckpointReader reader = saved.reader();
  Names tensors, states;
  for (const auto& [key, tensor] : reader.metadata().tensors)
    if (!key.starts_with("optimizer.")) tensors.push_back(key);
  for (const auto& [key, item] : reader.metadata().objects)
    if (key.find("._extra_state/") != std::string::npos) states.push_back(key);
  const std::string layer0 = "decoder.layers.0.", layer1 = "decoder.layers.1.", further = "mtp.layers.0.",
                    inner = further + "transformer_layer.";
  const Names outer = {"embedding.word_embeddings.weight", "decoder.final_layernorm.weight", "output_layer.weight"};
  EXPECT_THAT(tensors,
              UnorderedElementsAreArray(outer + in(layer0, kAttention + kDense) + in(layer1, kAttention + kExperts) +
                                        in(further, kFurther) + in(inner, kAttention + kExperts)));
  EXPECT_THAT(states, UnorderedElementsAreArray(
                          states_of("", {"decoder.final_layernorm.weight"}) + states_of(layer0, kAttention + kDense) +
                          states_of(layer1, kAttention + kExperts) + states_of(further, kFurther) +
                          states_of(inner, kAttention + kExperts)));
}

TEST(TransformerEngineNames, OfStackedLayersHaveAnExtraStateForEachLayer) {
  const Saved saved("");
  const CheckpointReader reader = saved.reader();
  Names keys;
  for (const auto& [key, item] : reader.metadata().objects) keys.push_back(key);
  EXPECT_THAT(keys, IsSupersetOf({"decoder.layers.self_attention.linear_q_up_proj._extra_state/shard_1_2",
                                  "decoder.layers.self_attention.linear_kv_down_proj._extra_state/shard_0_2",
                                  "decoder.layers.mlp.experts.experts.linear_fc1._extra_state/shard_1.0_2.2"}));
}

}  // namespace
}  // namespace megatron
