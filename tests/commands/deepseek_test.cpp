// DeepSeek's layers that predict further tokens, and its models as they are published, without key or tensor unread.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "commands/exit_code.h"
#include "megatron/datasets/indexed_dataset_builder.h"
#include "megatron/dist_checkpointing/safetensors.h"
#include "tests/commands/bridge_run.h"
#include "tests/testing/scratch_directory.h"

namespace megatron::testing {
namespace {

using ::testing::HasSubstr;

constexpr const char* kFurther = "deepseek_v3_mtp";

SafetensorsFile expected_of_further_tokens() {
  const std::string path = golden_model(kFurther) + "/expected.safetensors";
  return {PosixFileSystem().open_for_reading(path), path};
}

/// A data set of the golden tokens, the only document.
std::string write_golden_tokens(const SafetensorsFile& expected, const ScratchDirectory& scratch) {
  const std::vector<std::byte> bytes = expected.read("input_ids");
  std::vector<int64_t> tokens(bytes.size() / sizeof(int64_t));
  std::memcpy(tokens.data(), bytes.data(), bytes.size());
  const int32_t length = static_cast<int32_t>(tokens.size());
  IndexedDatasetBuilder builder(scratch.file("tokens"), {});
  builder.add_document(tokens, std::vector<int32_t>{length});
  builder.finalize();
  return scratch.file("tokens");
}

double number_behind(const std::string& text, const std::string& name) {
  const size_t begin = text.find(name);
  EXPECT_NE(begin, std::string::npos) << name << " is not in " << text;
  return begin == std::string::npos ? 0 : std::stod(text.substr(begin + name.size()));
}

TEST(Deepseek, LayersForFurtherTokensHaveTheLossOfTransformers) {
  const ScratchDirectory scratch;
  const SafetensorsFile expected = expected_of_further_tokens();
  const std::string tokens = write_golden_tokens(expected, scratch);
  const Ended ended = pretrain({"--device",
                                "cpu",
                                "--num-threads",
                                "1",
                                "--load-hf",
                                golden_model(kFurther),
                                "--data-path",
                                tokens,
                                "--split",
                                "1,0,0",
                                "--seq-length",
                                "22",
                                "--micro-batch-size",
                                "1",
                                "--global-batch-size",
                                "1",
                                "--train-iters",
                                "1",
                                "--lr",
                                "0",
                                "--tokenizer-type",
                                "NullTokenizer",
                                "--vocab-size",
                                "97",
                                "--eval-iters",
                                "0",
                                "--log-interval",
                                "1",
                                "--no-create-attention-mask-in-dataloader"});
  ASSERT_EQ(ended.status, 0) << ended.err << ended.out;
  const auto golden = [&](const char* name) { return std::stod(expected.metadata().at(name)); };
  EXPECT_NEAR(number_behind(ended.out, " lm loss: "), golden("loss"), 1e-5);
  EXPECT_NEAR(number_behind(ended.out, "mtp_1 loss: "), golden("mtp_loss"), 1e-5);
}

TEST(Deepseek, LayersForFurtherTokensComeBackToTheBit) {
  const ScratchDirectory scratch;
  const Ended imported = bridge({"import", "--hf-path", golden_model(kFurther), "--save", scratch.file("ckpt")});
  ASSERT_EQ(imported.status, 0) << imported.err;
  const Ended exported = bridge({"export", "--load", scratch.file("ckpt"), "--hf-path", scratch.file("hf")});
  ASSERT_EQ(exported.status, 0) << exported.err;
  expect_same_model(scratch.file("hf"), golden_model(kFurther));
  EXPECT_EQ(bridge({"roundtrip", "--hf-path", golden_model(kFurther)}).status, 0);
}

/// Changes the first byte of a tensor of a safetensors file.
void spoil(const std::string& path, const std::string& tensor) {
  const int64_t offset = SafetensorsFile(PosixFileSystem().open_for_reading(path), path).tensor(tensor).offset;
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(offset);
  file.put('\x5a');
}

TEST(Deepseek, RejectsLayersForFurtherTokensWithAnEmbeddingOfTheirOwn) {
  const ScratchDirectory scratch;
  const std::string folder = scratch.file("hf");
  std::filesystem::copy(golden_model(kFurther), folder);
  std::filesystem::permissions(folder + "/model.safetensors", std::filesystem::perms::owner_all);
  spoil(folder + "/model.safetensors", "model.layers.2.embed_tokens.weight");
  const Ended ended = bridge({"roundtrip", "--hf-path", folder});
  EXPECT_EQ(ended.status, static_cast<int>(ExitCode::kUsage)) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("model.layers.2.embed_tokens.weight differs from model.embed_tokens.weight"));
}

/// The message that rejects a golden model whose config.json has these values.
std::string rejection(const std::string& name, const nlohmann::json& changes) {
  const ScratchDirectory scratch;
  nlohmann::json config = json_of(golden_model(name) + "/config.json");
  config.update(changes);
  std::ofstream(scratch.file("config.json")) << config.dump();
  return bridge({"roundtrip", "--hf-path", scratch.path()}).err;
}

TEST(Deepseek, RejectsRoutersAndRotationsThatItDoesNotHave) {
  EXPECT_THAT(rejection("deepseek_v3", {{"scoring_func", "softmax"}, {"rope_interleave", false}}),
              ::testing::AllOf(HasSubstr("scoring_func is \"softmax\"; supported: \"sigmoid\""),
                               HasSubstr("rope_interleave is false; supported: true")));
  EXPECT_THAT(rejection("deepseek_v2", {{"norm_topk_prob", true}, {"num_key_value_heads", 2}}),
              ::testing::AllOf(HasSubstr("norm_topk_prob is true; supported: false"),
                               HasSubstr("num_key_value_heads is 2 and num_attention_heads 4")));
  EXPECT_THAT(rejection("deepseek_v3_yarn", {{"rope_parameters", {{"rope_type", "yarn"}, {"mscale_all_dim", 1.0}}}}),
              HasSubstr("yarn of latent attention supports mscale and mscale_all_dim together"));
  EXPECT_THAT(rejection("deepseek_v3", {{"rope_parameters", {{"rope_type", "linear"}, {"factor", 2.0}}}}),
              HasSubstr("latent attention supports the types default and yarn alone"));
  EXPECT_THAT(rejection("deepseek_v3", {{"rms_norm_eps", 1e-5}}), HasSubstr("rms_norm_eps is 1e-05; supported: 1e-06"));
}

TEST(Deepseek, RejectsQuantisationsThatItCannotUndo) {
  const auto with = [](const nlohmann::json& quantization) {
    return rejection("deepseek_v3_fp8", {{"quantization_config", quantization}});
  };
  EXPECT_THAT(with({{"quant_method", "gptq"}}), HasSubstr("supported: quant_method \"fp8\""));
  EXPECT_THAT(with({{"quant_method", "fp8"}, {"fmt", "e5m2"}}), HasSubstr("supported: quant_method \"fp8\""));
  EXPECT_THAT(with({{"quant_method", "fp8"}, {"weight_block_size", {128}}}), HasSubstr("a weight_block_size"));
}

TEST(Deepseek, NamesScalesThatDoNotFitTheirBlocks) {
  const ScratchDirectory scratch;
  const std::string folder = scratch.file("hf");
  std::filesystem::copy(golden_model("deepseek_v3_fp8"), folder);
  nlohmann::json config = json_of(folder + "/config.json");
  config["quantization_config"]["weight_block_size"] = {128, 128};
  std::filesystem::permissions(folder + "/config.json", std::filesystem::perms::owner_all);
  std::ofstream(folder + "/config.json") << config.dump();
  const Ended ended = bridge({"roundtrip", "--hf-path", folder});
  EXPECT_EQ(ended.status, static_cast<int>(ExitCode::kCheckpoint));
  EXPECT_THAT(ended.err, HasSubstr("down_proj.weight_scale_inv is float32 [2, 6], which does not fit"));
}

}  // namespace
}  // namespace megatron::testing
