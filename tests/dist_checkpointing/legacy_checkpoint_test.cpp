// Checkpoints of Megatron-LM's --ckpt-format torch, shown as the tensors of the whole model.
#include "megatron/dist_checkpointing/legacy_checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "megatron/base/error.h"
#include "megatron/dist_checkpointing/bucket_slots.h"
#include "megatron/dist_checkpointing/checkpoint_directory.h"
#include "megatron/dist_checkpointing/checkpoint_reader.h"
#include "megatron/dist_checkpointing/module_name.h"
#include "megatron/dist_checkpointing/safetensors.h"
#include "tests/testing/scratch_directory.h"
#include "tests/testing/source_tree.h"

namespace megatron {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

std::string legacy_folder(const std::string& name) {
  return testing::golden_path("checkpoint/lm019/" + name + "/saved/iter_0000002");
}

/// A case of the form torch, and the whole tensors of the same model as torch_dist has them.
struct LegacyCase {
  const char* folder;
  const char* expected;
  const char* main_params;  // name of their state there; null: no optimizer is stored
};
void PrintTo(const LegacyCase& one, std::ostream* out) { *out << one.folder; }

class LegacyGolden : public ::testing::TestWithParam<LegacyCase> {};
INSTANTIATE_TEST_SUITE_P(Cases, LegacyGolden,
                         ::testing::Values(LegacyCase{"legacy_1", "lm019_llama_1", "param"},
                                           LegacyCase{"legacy_plain_1", "lm019_gpt2_1", "param"},
                                           LegacyCase{"legacy_tp2", "lm019_llama_tp2", nullptr},
                                           LegacyCase{"legacy_pp2", "lm019_gpt2_pp2", nullptr}),
                         [](const auto& one) { return one.param.folder; });

TEST_P(LegacyGolden, HasTheTensorsOfTheSameModelInTorchDistBitForBit) {
  const PosixFileSystem files;
  const CheckpointReader reader(files, legacy_folder(GetParam().folder), Verify::kChecksums);
  const std::string path =
      testing::golden_path(std::string("checkpoint/expected/") + GetParam().expected) + ".safetensors";
  const SafetensorsFile expected(files.open_for_reading(path), path);
  EXPECT_EQ(reader.optimizer_problem(), "");
  int64_t num_compared = 0;
  for (const auto& [key, tensor] : expected.tensors()) {
    std::string own = key;
    const std::string main = "optimizer.state.param.";
    if (!GetParam().main_params && key.starts_with("optimizer.")) continue;
    if (key.starts_with(main) && !reader.has_tensor(key)) own.replace(0, main.size(), "optimizer.state.fp32_param.");
    ASSERT_TRUE(reader.has_tensor(own)) << own;
    EXPECT_EQ(reader.metadata().tensors.find(own)->second.shape, tensor.shape) << own;
    EXPECT_EQ(reader.read_whole_tensor(own), expected.read(key)) << own;
    ++num_compared;
  }
  EXPECT_EQ(num_compared, std::ssize(reader.metadata().tensors));
  EXPECT_THAT(reader.verify(), ::testing::IsEmpty());
  EXPECT_EQ(reader.read_common_state().state().at("iteration").as_int(), 2);
}

TEST(LegacyCheckpoint, IsFoundBesideOthersByItsFiles) {
  PosixFileSystem files;
  const CheckpointDirectory directory(files, testing::golden_path("checkpoint/lm019/legacy_tp2/saved"));
  EXPECT_EQ(directory.latest().found.value().iteration, 2);
}

TEST(LegacyCheckpoint, NamesTheFileOfARankThatIsMissing) {
  const PosixFileSystem files;
  const testing::ScratchDirectory scratch;
  std::filesystem::copy(legacy_folder("legacy_tp2") + "/mp_rank_00", scratch.file("mp_rank_00"));
  EXPECT_THAT([&] { LegacyCheckpoint(files, scratch.path()); },
              ThrowsMessage<CheckpointError>(HasSubstr("mp_rank_01/model_optim_rng.pt is missing")));
}

TEST(ModuleName, OfExpertsIsTheSameForGroupedAndSequentialOnes) {
  const ModuleName grouped = parse_module_name("decoder.layers.3.mlp.experts.linear_fc1.weight12");
  const ModuleName sequential = parse_module_name("decoder.layers.3.mlp.experts.local_experts.12.linear_fc1.weight");
  for (const ModuleName& name : {grouped, sequential}) {
    EXPECT_EQ(name.prefix, "decoder.layers.");
    EXPECT_EQ(name.layer, 3);
    EXPECT_EQ(name.expert, 12);
    EXPECT_EQ(name.name, "mlp.experts.experts.linear_fc1.weight");
  }
  EXPECT_THROW(parse_module_name("language_model.encoder.layers.0.weight"), NotSupported);
}

TEST(ModuleName, OfNormsFollowsTheLinearsThatTheyPrecede) {
  EXPECT_EQ(stored_norm_name("input_layernorm.bias", {}), "self_attention.linear_qkv.layer_norm_bias");
  EXPECT_EQ(stored_norm_name("pre_mlp_layernorm.weight", {}), "mlp.linear_fc1.layer_norm_weight");
  EXPECT_EQ(stored_norm_name("pre_mlp_layernorm.weight", {.has_experts = true}), "pre_mlp_layernorm.weight");
  const LayerModules latent{.has_latent_attention = true};
  EXPECT_EQ(stored_norm_name("input_layernorm.weight", latent), "input_layernorm.weight");
  EXPECT_EQ(stored_norm_name("pre_mlp_layernorm.weight", latent), "mlp.linear_fc1.layer_norm_weight");
  EXPECT_EQ(stored_norm_name("self_attention.q_layernorm.weight", latent),
            "self_attention.linear_q_up_proj.layer_norm_weight");
  EXPECT_EQ(stored_norm_name("self_attention.kv_layernorm.bias", latent),
            "self_attention.linear_kv_up_proj.layer_norm_bias");
  EXPECT_EQ(stored_norm_name("self_attention.linear_kv_up_proj.layer_norm_weight", latent),
            "self_attention.linear_kv_up_proj.layer_norm_weight");
  EXPECT_EQ(stored_norm_name("self_attention.q_layernorm.weight", {}), "self_attention.q_layernorm.weight");
}

TEST(BucketSlots, FillBucketsOfMegatronsSizesFromTheLastParameter) {
  const std::vector<BucketEntry> entries = {{100, true}, {65}, {10}, {64}};
  EXPECT_EQ(bucket_sizes(entries, {}), (std::vector<int64_t>{256, 100}));  // 64, 10 at 64, 65 at 128, then aligned
  EXPECT_EQ(bucket_slots(entries, bucket_sizes(entries, {})).value(),
            (std::vector<BucketSlot>{{1, 0}, {0, 128}, {0, 64}, {0, 0}}));
  EXPECT_EQ(bucket_sizes(entries, 70), (std::vector<int64_t>{74, 128, 100}));
  EXPECT_FALSE(bucket_slots(entries, std::vector<int64_t>{256}));
}

}  // namespace
}  // namespace megatron
