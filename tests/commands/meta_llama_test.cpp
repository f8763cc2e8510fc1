// Llamas as Meta publishes them: the weights of golden models, in one file and in two (tests/golden/hf/make_meta.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "commands/exit_code.h"
#include "tests/commands/bridge_run.h"

namespace megatron::testing {
namespace {

using ::testing::HasSubstr;

/// Logits [sequences, tokens, `width`] without those of entries that pad a vocabulary.
std::vector<float> without_padding(const std::vector<float>& logits, size_t width, size_t vocab_size) {
  std::vector<float> kept;
  for (size_t begin = 0; begin < logits.size(); begin += width)
    kept.insert(kept.end(), logits.begin() + begin, logits.begin() + begin + vocab_size);
  return kept;
}

void expect_logits(const std::string& meta, const std::string& twin, size_t width, const std::vector<float>& expected) {
  SCOPED_TRACE(meta);
  const ScratchDirectory scratch;
  const Ended imported = bridge({"import", "--hf-path", golden_model(meta), "--save", scratch.file("ckpt")});
  ASSERT_EQ(imported.status, 0) << imported.err;
  for (const Words& model : {Words{"--load-hf", golden_model(meta)}, Words{"--load", scratch.file("ckpt")}}) {
    const std::vector<float> ours = without_padding(logits_of(model, twin, scratch), width, 97);
    ASSERT_EQ(ours.size(), expected.size());
    double most = 0;
    for (size_t i = 0; i < ours.size(); ++i) most = std::max<double>(most, std::abs(ours[i] - expected[i]));
    EXPECT_LE(most, 1e-4);
  }
}

TEST(MetaLlama, ComputesTheLogitsOfItsHuggingFaceTwin) {
  const auto expected = floats_of(open_safetensors(golden_model("llama") + "/expected.safetensors"), "logits");
  expect_logits("llama_meta", "llama", 97, expected);
  expect_logits("llama_meta_2", "llama", 98, expected);
}

std::string writable_copy(const std::string& name, const ScratchDirectory& scratch) {
  std::filesystem::copy(golden_model(name), scratch.file(name));
  for (const auto& entry : std::filesystem::directory_iterator(scratch.file(name)))
    std::filesystem::permissions(entry.path(), std::filesystem::perms::owner_all);
  return scratch.file(name);
}

/// params.json does not say that Llama 3.1 was trained on 8192 positions before its rotary scaling.
TEST(MetaLlama, ScalesRotaryFrequenciesAsPublished) {
  const ScratchDirectory scratch;
  const std::string name = "llama_rope_llama3", twin = writable_copy(name, scratch);
  nlohmann::json config = json_of(twin + "/config.json");
  for (const char* key : {"rope_parameters", "rope_scaling"})
    if (config.contains(key)) config[key]["original_max_position_embeddings"] = 8192;
  config["max_position_embeddings"] = 131072;
  std::ofstream(twin + "/config.json") << config.dump();
  expect_logits("llama3_meta_2", name, 98, logits_of({"--load-hf", twin}, name, scratch));
}

TEST(MetaLlama, IsExportedAsItsHuggingFaceTwin) {
  const ScratchDirectory scratch;
  ASSERT_EQ(bridge({"import", "--hf-path", golden_model("llama_meta"), "--save", scratch.file("ckpt")}).status, 0);
  const Ended exported = bridge({"export", "--load", scratch.file("ckpt"), "--hf-path", scratch.file("hf")});
  ASSERT_EQ(exported.status, 0) << exported.err;
  expect_same_tensors(scratch.file("hf"), golden_model("llama"));
}

TEST(MetaLlama, ComesBackBitForBit) {
  for (const std::string name : {"llama_meta", "llama_meta_2", "llama3_meta_2"}) {
    const Ended ended = bridge({"roundtrip", "--hf-path", golden_model(name)});
    EXPECT_EQ(ended.status, 0) << name << ": " << ended.err;
  }
}

TEST(MetaLlama, RejectsUnknownKeysAndMissingFiles) {
  const ScratchDirectory scratch;
  const std::string folder = writable_copy("llama_meta_2", scratch);
  nlohmann::json params = json_of(folder + "/params.json");
  params["use_qk_norm"] = true;
  std::ofstream(folder + "/params.json") << params.dump();
  const Ended unknown = bridge({"roundtrip", "--hf-path", folder});
  EXPECT_EQ(unknown.status, static_cast<int>(ExitCode::kUsage));
  EXPECT_THAT(unknown.err, HasSubstr("use_qk_norm is true, an unknown key"));
  params.erase("use_qk_norm");
  std::ofstream(folder + "/params.json") << params.dump();
  std::filesystem::remove(folder + "/consolidated.01.pth");
  const Ended half = bridge({"roundtrip", "--hf-path", folder});
  EXPECT_EQ(half.status, static_cast<int>(ExitCode::kCheckpoint));
  EXPECT_THAT(half.err, HasSubstr("tensors of another shape"));
  std::filesystem::remove(folder + "/consolidated.00.pth");
  EXPECT_THAT(bridge({"roundtrip", "--hf-path", folder}).err, HasSubstr("no consolidated.00.pth"));
}

}  // namespace
}  // namespace megatron::testing
