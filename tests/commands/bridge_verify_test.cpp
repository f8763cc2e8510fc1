// megatron bridge --verify: logits that another program has stored.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "commands/exit_code.h"
#include "tests/commands/bridge_run.h"
#include "tests/testing/program.h"

namespace megatron::testing {
namespace {

using ::testing::ContainsRegex;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

const Words kOneThread = {"--device", "cpu", "--num-threads", "1"};

Ended verified(const Words& words) { return bridge(joined(joined(words, {"--verify"}), kOneThread)); }

TEST(BridgeVerify, ComparesAnImportWithTheLogitsBesideTheModel) {
  for (const std::string name : {"llama_tied_bias", "gpt2", "qwen3_moe", "deepseek_v3_yarn", "gemma3"}) {
    SCOPED_TRACE(name);
    const ScratchDirectory scratch;
    const Ended ended = verified({"import", "--hf-path", golden_model(name), "--save", scratch.file("ckpt")});
    EXPECT_EQ(ended.status, 0) << ended.err;
    EXPECT_THAT(ended.out, HasSubstr("verified: the logits differ from those of " + golden_model(name)));
    EXPECT_THAT(ended.out, HasSubstr("tolerance 0.0001"));
  }
}

TEST(BridgeVerify, ComparesARoundTripAndAnExport) {
  const ScratchDirectory scratch;
  const std::string model = golden_model("qwen2"), expected = model + "/expected.safetensors";
  EXPECT_EQ(verified({"roundtrip", "--hf-path", model}).status, 0);
  ASSERT_EQ(bridge({"import", "--hf-path", model, "--save", scratch.file("ckpt")}).status, 0);
  const Words words = {"export", "--load", scratch.file("ckpt"), "--hf-path", scratch.file("hf")};
  const Ended without = verified(words);
  EXPECT_EQ(without.status, static_cast<int>(ExitCode::kUsage));
  EXPECT_THAT(without.err, HasSubstr("give --verify-logits"));
  const Ended ended = verified(joined(words, {"--verify-logits", expected}));
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_THAT(ended.out, HasSubstr("verified"));
}

TEST(BridgeVerify, FailsOnLogitsOfAnotherModel) {
  const ScratchDirectory scratch;
  const Ended ended = verified({"import", "--hf-path", golden_model("llama"), "--save", scratch.file("ckpt"),
                                "--verify-logits", golden_model("mistral") + "/expected.safetensors"});
  EXPECT_EQ(ended.status, static_cast<int>(ExitCode::kFailure));
  EXPECT_THAT(ended.out, HasSubstr("NOT verified"));
  EXPECT_THAT(ended.err, HasSubstr("of sequence"));
  EXPECT_THAT(ended.err, HasSubstr("--verify-tolerance"));
}

TEST(BridgeVerify, WritesNothingIfThereIsNothingToCompareWith) {
  const ScratchDirectory scratch;
  const std::string model = golden_model("llama_meta");
  const Ended ended = verified({"import", "--hf-path", model, "--save", scratch.file("ckpt")});
  EXPECT_EQ(ended.status, static_cast<int>(ExitCode::kData));
  EXPECT_THAT(ended.err, HasSubstr("nothing to compare with: " + model + "/expected.safetensors is missing"));
  EXPECT_FALSE(std::filesystem::exists(scratch.file("ckpt")));
  const Ended of_weights =
      verified({"roundtrip", "--hf-path", model, "--verify-logits", golden_model("gpt2") + "/model.safetensors"});
  EXPECT_EQ(of_weights.status, static_cast<int>(ExitCode::kData));
  EXPECT_THAT(of_weights.err, HasSubstr("no tensor input_ids"));
}

TEST(BridgeVerify, RejectsItsFlagsAlone) {
  const Ended ended =
      bridge(joined({"roundtrip", "--hf-path", golden_model("llama"), "--verify-logits", "nowhere"}, kOneThread));
  EXPECT_EQ(ended.status, static_cast<int>(ExitCode::kUsage));
  for (const char* flag : {"--verify-logits", "--device", "--num-threads"})
    EXPECT_THAT(ended.err, HasSubstr(std::string(flag) + " goes with --verify alone"));
}

TEST(BridgeProgress, IsPlainLinesWhereThereIsNoTerminal) {
  const ScratchDirectory scratch;
  const Words words = {MEGATRON_PROGRAM,    "bridge", "import", "--hf-path", golden_model("llama"), "--save",
                       scratch.file("ckpt")};
  Program process(words);
  EXPECT_EQ(process.wait_status(), 0);
  EXPECT_THAT(process.output(), ContainsRegex("importing: [0-9/]+ MiB.*\n"));
  EXPECT_THAT(process.output(), Not(ContainsRegex("[\r\033]")));
  EXPECT_THAT(process.output(), EndsWith("as iteration 0\n"));
}

}  // namespace
}  // namespace megatron::testing
