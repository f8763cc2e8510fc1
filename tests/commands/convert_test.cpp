// `megatron convert` with the flags of Megatron-LM's tools/checkpoint/convert.py.
#include "commands/convert.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "megatron/dist_checkpointing/safetensors_folder.h"
#include "tests/commands/checkpoint_run.h"
#include "tests/testing/scratch_directory.h"

namespace megatron::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

ToolResult convert(const Words& words) {
  std::ostringstream out, err;
  const int status = convert_command(words, out, err);
  return {status, out.str(), err.str()};
}

void expect_same_weights(const std::string& folder, const std::string& expected) {
  const PosixFileSystem files;
  const SafetensorsFolder own(files, folder), wanted(files, expected);
  EXPECT_EQ(own.names(), wanted.names());
  for (const std::string& name : wanted.names()) {
    const Shape& shape = wanted.tensor(name).shape;
    std::vector<std::byte> bytes(static_cast<size_t>(wanted.tensor(name).bytes)), others = bytes;
    own.read_box(name, Box::whole(shape), bytes.data(), shape.contiguous_strides());
    wanted.read_box(name, Box::whole(shape), others.data(), shape.contiguous_strides());
    EXPECT_EQ(bytes, others) << name;
  }
}

TEST(Convert, TakesAModelOfHuggingFaceToALayoutAndBack) {
  const std::string model = golden_path("hf/llama");
  const ScratchDirectory scratch;
  const ToolResult there =
      convert({"--model-type", "GPT", "--loader", "llama_mistral", "--saver", "mcore", "--load-dir", model,
               "--save-dir", scratch.file("there"), "--target-tensor-parallel-size", "2",
               "--target-pipeline-parallel-size", "2", "--tokenizer-model", "x"});
  ASSERT_EQ(there.status, 0) << there.err;
  EXPECT_THAT(there.err, HasSubstr("--tokenizer-model has no effect"));
  EXPECT_FALSE(std::filesystem::exists(scratch.file("there.import")));
  const nlohmann::json report = checkpoint({"inspect", scratch.file("there"), "--json"}).json();
  EXPECT_EQ(report["layout"]["tensor"], 2);
  EXPECT_EQ(report["layout"]["pipeline"], 2);
  const ToolResult back = convert({"--loader", "megatron", "--saver", "llama_mistral", "--load-dir",
                                   scratch.file("there"), "--save-dir", scratch.file("back")});
  ASSERT_EQ(back.status, 0) << back.err;
  expect_same_weights(scratch.file("back"), model);
}

/// The arguments of a Megatron run fit llama, mistral and phi3; the script's saver names the first two.
TEST(Convert, TakesTheFamilyOfTheSaverWhereSeveralFit) {
  const ScratchDirectory scratch;
  const auto to = [&](const std::string& saver, const std::string& folder, const Words& more) {
    return convert(joined({"--loader", "mcore", "--saver", saver, "--load-dir", golden("llama_1"), "--save-dir",
                           scratch.file(folder), "--saver-transformer-impl", "transformer_engine",
                           "--position-embedding-type", "rope", "--loader-transformer-impl", "local"},
                          more));
  };
  const auto model_type = [&](const std::string& folder) {
    std::ifstream file(scratch.file(folder) + "/config.json");
    return nlohmann::json::parse(file)["model_type"].get<std::string>();
  };
  const ToolResult several = to("hf", "several", {});
  EXPECT_THAT(several.err, AllOf(HasSubstr("llama, mistral, phi3"), HasSubstr("--hf-model-type"),
                                 HasSubstr("--saver-transformer-impl has no effect"),
                                 HasSubstr("--position-embedding-type has no effect")));
  const ToolResult script = to("llama_mistral", "script", {});
  ASSERT_EQ(script.status, 0) << script.err;
  EXPECT_EQ(model_type("script"), "llama");
  const ToolResult chosen = to("hf", "chosen", {"--hf-model-type", "mistral"});
  ASSERT_EQ(chosen.status, 0) << chosen.err;
  EXPECT_EQ(model_type("chosen"), "mistral");
  expect_same_weights(scratch.file("chosen"), scratch.file("script"));
}

TEST(Convert, WithoutAnotherLayoutIsAnImport) {
  const ScratchDirectory scratch;
  ASSERT_EQ(convert({"--loader", "hf", "--saver", "core", "--load-dir", golden_path("hf/llama"), "--save-dir",
                     scratch.file("new")})
                .status,
            0);
  EXPECT_EQ(checkpoint({"verify", scratch.file("new")}).status, 0);
}

TEST(Convert, ChangesTheLayoutOfACheckpointWithItsOptimizer) {
  const ScratchDirectory scratch;
  const ToolResult done = convert({"--loader", "core", "--saver", "core", "--load-dir", golden("llama_1"), "--save-dir",
                                   scratch.file("new"), "--target-tensor-parallel-size", "2"});
  ASSERT_EQ(done.status, 0) << done.err;
  EXPECT_EQ(checkpoint({"diff", scratch.file("new"), golden("llama_1")}).status, 0);
  EXPECT_EQ(checkpoint({"inspect", scratch.file("new"), "--json"}).json()["layout"]["tensor"], 2);
}

TEST(Convert, NamesTheCommandOrTheFlagThatIsWanted) {
  const ToolResult none = convert({});
  EXPECT_EQ(none.status, static_cast<int>(ExitCode::kUsage));
  EXPECT_THAT(none.err, AllOf(HasSubstr("--loader is missing"), HasSubstr("--saver is missing"),
                              HasSubstr("--load-dir is missing"), HasSubstr("--save-dir is missing")));
  const Words folders = {"--load-dir", "a", "--save-dir", "b"};
  const auto refusal = [&](Words words) {
    words.insert(words.end(), folders.begin(), folders.end());
    return convert(words).err;
  };
  EXPECT_THAT(refusal({"--loader", "hf", "--saver", "mixtral_hf"}), HasSubstr("megatron bridge roundtrip"));
  EXPECT_THAT(refusal({"--loader", "core", "--saver", "hf", "--target-tensor-parallel-size", "2"}),
              HasSubstr("--target-tensor-parallel-size goes with --saver core"));
  EXPECT_THAT(refusal({"--loader", "llava", "--saver", "core"}), HasSubstr("llava"));
  EXPECT_THAT(refusal({"--loader", "core", "--saver", "core", "--model-type", "BERT"}), HasSubstr("BERT"));
  EXPECT_THAT(refusal({"--loader", "core", "--saver", "core", "--saver-transformer-impl", "other"}),
              HasSubstr("transformer_engine"));
  EXPECT_THAT(refusal({"--loader", "core", "--saver", "core", "--hf-model-type", "llama"}),
              HasSubstr("--hf-model-type goes with --saver hf"));
  std::ostringstream out, err;
  EXPECT_EQ(convert_command({"--help"}, out, err), 0);
  EXPECT_THAT(out.str(), AllOf(HasSubstr("--target-tensor-parallel-size"), HasSubstr("llama_mistral")));
}

}  // namespace
}  // namespace megatron::testing
