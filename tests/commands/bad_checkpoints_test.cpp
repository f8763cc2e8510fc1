// Checkpoints that are missing, truncated, damaged or of another model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/commands/bad_input.h"

namespace megatron::testing {
namespace {

using ::testing::HasSubstr;
constexpr ExitCode kCheckpoint = ExitCode::kCheckpoint;
const Words kLoad = {"--load", "@/ckpt"};
const std::string kFolder = "ckpt/iter_0000002/";
const std::string kTensors = kFolder + "__0_0.distcp", kIndex = kFolder + ".metadata",
                  kFormat = kFolder + "metadata.json", kTracker = "ckpt/latest_checkpointed_iteration.txt",
                  kRestore = "Restore one", kChoose = "Choose one with --ckpt-step";

Words load_with(const Words& more) {
  Words words = kLoad;
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

TEST(BadCheckpoints, TrainingRejectsThem) {
  expect_refusals({
      {"no folder",
       kPretrain,
       load_with({"--exit-on-missing-checkpoint"}),
       kCheckpoint,
       {"--load @/ckpt: no checkpoint is there", "leave --exit-on-missing-checkpoint out"},
       remove("ckpt")},
      {"tracker alone",
       kPretrain,
       kLoad,
       kCheckpoint,
       {"iteration 2, which does not exist", kRestore},
       remove(kFolder)},
      {"no index", kPretrain, kLoad, kCheckpoint, {"iteration 2, which is not complete", kRestore}, remove(kIndex)},
      {"no format", kPretrain, kLoad, kCheckpoint, {"iteration 2, which is not complete", kRestore}, remove(kFormat)},
      {"tracker of a release", kPretrain, kLoad, kCheckpoint, {"\"release\"", kChoose}, write(kTracker, "release")},
      {"tracker of no number", kPretrain, kLoad, kCheckpoint, {"\"seven\"", kChoose}, write(kTracker, "seven")},
      {"tracker of an older one", kPretrain, kLoad, kCheckpoint, {"names iteration 1", kChoose}, write(kTracker, "1")},
      {"an iteration's folder",
       kPretrain,
       {"--load", "@/" + kFolder},
       kCheckpoint,
       {"is one checkpoint", "the folder that it is in: @/ckpt --ckpt-step 2"}},
      {"a file", kPretrain, {"--load", "@/text.txt"}, kCheckpoint, {"--load @/text.txt cannot be read", "--save has"}},
      {"pretrained that is not there",
       kPretrain,
       {"--pretrained-checkpoint", "@/ckpy"},
       kCheckpoint,
       {"--pretrained-checkpoint @/ckpy: no checkpoint is there", "Correct the path"}},
      {"no iteration", kPretrain, load_with({"--ckpt-step", "7"}), kCheckpoint, {"iteration 7", "Complete are: 2"}},
      {"no tensors", kPretrain, kLoad, kCheckpoint, {"@/" + kTensors, "Restore the file"}, remove(kTensors)},
      {"0 bytes", kPretrain, kLoad, kCheckpoint, {"cut short", "has 0 bytes", "Restore it"}, truncate(kTensors, 0)},
      {"9000 bytes", kPretrain, kLoad, kCheckpoint, {"cut short", "has 9000 bytes"}, truncate(kTensors, 9000)},
      {"60000 bytes", kPretrain, kLoad, kCheckpoint, {"cut short", "has 60000 bytes"}, truncate(kTensors, 60'000)},
      {"last byte", kPretrain, kLoad, kCheckpoint, {"cut short", "Restore it"}, truncate(kTensors, -1)},
      {"index cut", kPretrain, kLoad, kCheckpoint, {"checksum", "Restore it"}, truncate(kIndex, 100)},
      {"index empty", kPretrain, kLoad, kCheckpoint, {"checksum", "Restore it"}, truncate(kIndex, 0)},
      {"index changed", kPretrain, kLoad, kCheckpoint, {"checksum"}, overwrite(kIndex, 500, "\7")},
      {"format", kPretrain, kLoad, kCheckpoint, {"no JSON object", "Restore it"}, write(kFormat, "{")},
      {"other format",
       kPretrain,
       kLoad,
       kCheckpoint,
       {"zarr", "Convert the checkpoint"},
       write(kFormat, "{\"sharded_backend\": \"zarr\", \"sharded_backend_version\": 1}")},
      {"width", kPretrain, load_with({"--hidden-size", "16"}), kCheckpoint, {"16", "8", "flags"}},
      {"depth", kPretrain, load_with({"--num-layers", "2"}), kCheckpoint, {"1", "2", "flags"}},
      {"arguments",
       kPretrain,
       load_with({"--use-checkpoint-args"}),
       kCheckpoint,
       {"no checkpoint is there"},
       remove("ckpt")},
  });
}

TEST(BadCheckpoints, RejectsAnotherTokenizerUnlessTheFlagsAllowIt) {
  const Words ways_out = {"@/ckpt/iter_0000002 was trained with another", "--finetune", "--allow-other-tokenizer"};
  const Words bytes = load_with({"--tokenizer-type", "ByteLevelTokenizer"});
  const Words numbers = load_with(words_of("--tokenizer-type NullTokenizer --vocab-size 999"));
  const auto other_order = write("chars.txt", "hgfedcba \n");
  const Words there = {"CharTokenizer of 10 tokens there"};
  expect_refusals({
      {"bytes",
       kPretrain,
       bytes,
       kCheckpoint,
       joined(ways_out, joined(there, {"ByteLevelTokenizer of 257"})),
       {},
       {"--vocab-file"}},
      {"numbers",
       kPretrain,
       numbers,
       kCheckpoint,
       joined(ways_out, joined(there, {"of 999 tokens here"})),
       {},
       {"--vocab-file"}},
      {"order", kPretrain, kLoad, kCheckpoint, joined(ways_out, {"vocabulary of CharTokenizer of 10 tokens"}),
       other_order},
      {"generation", kGenerate, {}, kCheckpoint, {"another vocabulary", "Leave --vocab-file"}, other_order},
  });
  const Words longer = {"--train-iters", "3", "--override-opt_param-scheduler"};
  EXPECT_THAT(expect_success({"allowed",
                              kPretrain,
                              joined(load_with({"--allow-other-tokenizer"}), longer),
                              ExitCode::kSuccess,
                              {},
                              other_order}),
              HasSubstr("was trained with another vocabulary"));
  expect_success({"finetuning", kPretrain, load_with({"--finetune"}), ExitCode::kSuccess, {}, other_order});
}

TEST(BadCheckpoints, GenerationNeedsNoFilesOfTheTraining) {
  const auto move = [](const std::string& folder) {
    std::filesystem::remove(folder + "/chars.txt");
    std::filesystem::rename(folder + "/ckpt", folder + "/moved");
  };
  EXPECT_THAT(
      expect_success({"moved", kGenerate, {"--load", "@/moved"}, ExitCode::kSuccess, {}, move, {"--vocab-file"}}),
      HasSubstr("abc"));
}

/// The open of a FIFO waits until another program writes to it.
TEST(BadCheckpoints, RejectsAFifoInPlaceOfAFileAtOnce) {
  const Words kind = {"It is a FIFO (named pipe), not a regular file"};
  for (const std::string& name : {kIndex, kFolder + ".metadata.crc32", kFormat, kTensors, kTracker}) {
    const bool is_compared = name == kIndex || name == kTensors;  // ranks compare it before they read it
    const Words texts = joined({"@/" + name}, kind);
    expect_refusal({name, kPretrain, kLoad, is_compared ? ExitCode::kIo : kCheckpoint, texts, fifo(name)});
    expect_refusal({name, kGenerate, {}, kCheckpoint, texts, fifo(name)});
  }
}

/// Validation sets are built for the number of evaluations that this run's flags give.
TEST(BadCheckpoints, RejectsMoreConsumedValidationSamplesThanTheDataHasBeforeTheFirstStep) {
  const Words many = words_of("--train-iters 4 --eval-iters 2 --eval-interval 1");
  const auto train = [&](const std::string& folder) {
    Words words = words_of(
        "--num-layers 1 --hidden-size 8 --num-attention-heads 2 --seq-length 16 --max-position-embeddings 16"
        " --micro-batch-size 2 --global-batch-size 4 --lr 1e-3 --tokenizer-type CharTokenizer --split 8,1,1"
        " --num-threads 1 --save-interval 4 --vocab-file");
    words.insert(words.end(), {folder + "/chars.txt", "--data-path", folder + "/data", "--save", folder + "/long"});
    words.insert(words.end(), many.begin(), many.end());
    EXPECT_EQ(run(kPretrain, words).status, 0);
  };
  const Words resume = words_of("--load @/long --train-iters 5 --override-opt_param-scheduler");
  BadInput fewer{"fewer evaluations",
                 kPretrain,
                 joined(resume, words_of("--eval-iters 1 --eval-interval 100")),
                 ExitCode::kUsage,
                 {"the validation set (--split 8,1,1)", "36 are needed: 32 are consumed", "each of 1 evaluations",
                  "--eval-iters 1 batches of 4", "--eval-interval", "--dataloader-type cyclic"},
                 train};
  expect_refusal(fewer);
  fewer.words = joined(resume, words_of("--eval-iters 2 --eval-interval 1"));
  EXPECT_THAT(expect_success(fewer), HasSubstr("validation loss at iteration 5"));
  fewer.words = joined(resume, words_of("--eval-iters 1 --eval-interval 100 --dataloader-type cyclic"));
  EXPECT_THAT(expect_success(fewer), HasSubstr("validation loss at iteration 5"));
}

TEST(BadCheckpoints, GenerationRejectsThem) {
  expect_refusals({
      {"no folder", kGenerate, {}, kCheckpoint, {"no checkpoint is there", "Correct the path"}, remove("ckpt")},
      {"no iteration", kGenerate, {"--ckpt-step", "9"}, kCheckpoint, {"iteration 9", "Complete are: 2"}},
      {"no tensors", kGenerate, {}, kCheckpoint, {"@/" + kTensors, "Restore the file"}, remove(kTensors)},
      {"0 bytes", kGenerate, {}, kCheckpoint, {"cut short", "Restore it"}, truncate(kTensors, 0)},
      {"index cut", kGenerate, {}, kCheckpoint, {"checksum", "Restore it"}, truncate(kIndex, 100)},
  });
}

// Tensors are short and lie between headers, so the test changes consecutive bytes.
TEST(BadCheckpoints, RejectsChangedBytes) {
  // Only Megatron reads the generator states, from about byte 22,000 to 37,000.
  for (const int64_t offset : {500, 5000, 45'000, 60'000, 90'000})
    expect_refusal({"bytes at " + std::to_string(offset),
                    kPretrain,
                    kLoad,
                    kCheckpoint,
                    {"@/" + kTensors},
                    overwrite(kTensors, offset, std::string(3000, 'U'))});
}

TEST(BadCheckpoints, LoadsWithoutATrackerOrWithATrackerOfALaterCheckpoint) {
  const auto expect_warning = [](const std::string& name, std::function<void(const std::string&)> damage,
                                 const std::string& text) {
    const std::string printed = expect_success({name, kPretrain, kLoad, ExitCode::kSuccess, {}, std::move(damage)});
    EXPECT_THAT(printed, HasSubstr(text));
    EXPECT_THAT(printed, HasSubstr("Loading iteration 2"));
  };
  expect_warning("later iteration", write(kTracker, "7"), "names iteration 7, which does not exist");
  expect_warning("empty", write(kTracker, ""), "is missing or empty");
  expect_warning("missing", remove(kTracker), "is missing or empty");
}

}  // namespace
}  // namespace megatron::testing
