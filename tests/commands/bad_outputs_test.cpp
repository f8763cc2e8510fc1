// Unwritable places, full disks, and losses that are not finite. A file in place of a folder stands for one that is not
// writable, since a privileged user may write into any folder.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "tests/commands/bad_input.h"
#include "tests/testing/scratch_directory.h"

namespace megatron::testing {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
constexpr ExitCode kIo = ExitCode::kIo;

TEST(BadOutputs, TrainingRejectsThemBeforeTheFirstStep) {
  const Words fix = {"cannot be written", "Give a path that can be"};
  const auto texts = [&](const std::string& flag) { return Words{flag, fix[0], fix[1]}; };
  expect_refusals({
      {"save below a file",
       kPretrain,
       {"--save", "@/text.txt/x", "--save-interval", "1"},
       kIo,
       texts("--save @/text.txt/x")},
      {"save is a file", kPretrain, {"--save", "@/text.txt", "--save-interval", "1"}, kIo, texts("--save @/text.txt")},
      {"save below a device",
       kPretrain,
       {"--save", "/dev/full/x", "--save-interval", "1"},
       kIo,
       texts("--save /dev/full/x")},
      {"save in /proc", kPretrain, {"--save", "/proc/x", "--save-interval", "1"}, kIo, texts("--save /proc/x")},
      {"tensorboard below a file",
       kPretrain,
       {"--tensorboard-dir", "@/text.txt/x"},
       kIo,
       texts("--tensorboard-dir @/text.txt/x")},
      {"jsonl below a file", kPretrain, {"--log-jsonl", "@/text.txt/x"}, kIo, texts("--log-jsonl @/text.txt/x")},
      {"jsonl is a folder",
       kPretrain,
       {"--log-jsonl", "@/ckpt"},
       kIo,
       {"--log-jsonl @/ckpt", "is a directory", fix[1]}},
      {"jsonl on a full disk", kPretrain, {"--log-jsonl", "/dev/full"}, kIo, {"/dev/full", "No space left"}},
      {"jsonl is a folder", kPretrain, {"--log-jsonl", "@/ckpt"}, kIo, texts("--log-jsonl @/ckpt")},
      {"curve below a file",
       kPretrain,
       {"--log-loss-curve", "@/text.txt/x"},
       kIo,
       texts("--log-loss-curve @/text.txt/x")},
  });
}

TEST(BadOutputs, CreatesNoFolderDirectlyBelowTheRoot) {
  const auto refused = [](const std::string& flag, const std::string& more = "") {
    return BadInput{flag,
                    kPretrain,
                    joined({flag, "/nonexistent/a/b", "--save-interval", "1"}, words_of(more)),
                    kIo,
                    {flag + " /nonexistent/a/b", "/nonexistent does not exist"}};
  };
  expect_refusals({refused("--save"), refused("--tensorboard-dir"), refused("--log-jsonl"), refused("--log-loss-curve"),
                   refused("--data-cache-path"),
                   refused("--non-persistent-global-ckpt-dir",
                           "--save none --non-persistent-ckpt-type global --non-persistent-save-interval 1")});
  EXPECT_FALSE(std::filesystem::exists("/nonexistent"));
}

TEST(BadOutputs, CreatesMissingFolders) {
  expect_success(
      {"folders that do not exist", kPretrain,
       words_of("--save @/cache/a/b --save-interval 1 --log-jsonl @/cache/c/log --tensorboard-dir @/cache/d/board"
                " --log-loss-curve @/cache/e/loss.svg")});
}

TEST(BadOutputs, StopsLogsThatFillTheDiskWithAWarning) {
  BadInput input{"disk full", kPretrain,
                 words_of("--train-iters 400 --log-interval 1 --log-jsonl @/cache/log --tensorboard-dir @/cache/tb"
                          " --log-loss-curve @/cache/curve")};
  input.most_file_bytes = 50'000;
  const std::string out = expect_success(input);
  for (const std::string flag : {"--log-jsonl", "--tensorboard-dir"})
    EXPECT_THAT(out, ContainsRegex("WARNING: " + flag + ": .*File too large.*goes on without"));
  EXPECT_THAT(out, HasSubstr("validation loss at iteration 400 on test set"));
}

TEST(BadOutputs, StopsAProgressFileThatCannotGrowWithAWarning) {
  const ScratchDirectory saves;
  BadInput input{"disk full", kPretrain,
                 words_of("--log-progress --save-interval 1 --train-iters 2 --save " + saves.path())};
  input.most_file_bytes = 500'000;
  std::ofstream(saves.file("progress.txt")) << std::string(499'900, '\n');
  const std::string out = expect_success(input);
  EXPECT_THAT(out, ContainsRegex("WARNING: --log-progress: .*File too large.*goes on without"));
  EXPECT_THAT(out, HasSubstr("successfully saved checkpoint from iteration       2"));
}

TEST(BadOutputs, DevicesAreNotReplaced) {
  BadInput input{"curve over a pipe", kPretrain, {"--log-loss-curve", "@/pipe"}, kIo, {"@/pipe", "is not replaced"}};
  input.damage = [](const std::string& folder) { ASSERT_EQ(::mkfifo((folder + "/pipe").c_str(), 0600), 0); };
  expect_refusal(input);
}

TEST(BadOutputs, AFullDiskLeavesOldCheckpointsAlone) {
  BadInput input{"disk full",
                 kPretrain,
                 {"--save", "@/ckpt", "--save-interval", "1", "--train-iters", "1"},
                 kIo,
                 {"File too large"}};
  input.most_file_bytes = 20'000;
  input.may_write = "c";  // cache/, and ckpt/iter_0000001.saving/, which the next save removes
  expect_refusal(input);
}

TEST(BadOutputs, FailedPreprocessingLeavesNoFiles) {
  const Words text = {"--input-format", "text", "--output-prefix"};
  const auto to = [&](const std::string& prefix) { return Words{text[0], text[1], text[2], prefix}; };
  BadInput full{"disk full", kPreprocess, to("@/out"), kIo, {"@/out", "File too large"}};
  full.most_file_bytes = 1000;
  expect_refusals(
      {{"below a file", kPreprocess, to("@/text.txt/x"), kIo, {"@/text.txt/x", "Does its directory exist?"}},
       {"below a device", kPreprocess, to("/dev/full/x"), kIo, {"/dev/full/x", "cannot be written"}},
       {"in /proc", kPreprocess, to("/proc/x"), kIo, {"/proc/x", "cannot be written"}},
       full});
}

TEST(BadOutputs, TrainsWithoutACacheThatCannotBeWritten) {
  BadInput input{"cache below a file", kPretrain, {"--data-cache-path", "@/text.txt/x"}};
  EXPECT_THAT(expect_success(input), ContainsRegex("WARNING: .*Give a writable directory with --data-cache-path"));
}

TEST(BadOutputs, ALossThatIsNotFiniteEndsTraining) {
  expect_refusal(
      {"diverges", kPretrain, {"--lr", "1e30"}, ExitCode::kResumeToDisambiguate, {"iteration 2", "nan", "lower --lr"}});
}

}  // namespace
}  // namespace megatron::testing
