#include "commands/data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "commands/exit_code.h"
#include "megatron/datasets/indexed_dataset_builder.h"
#include "tests/testing/scratch_directory.h"
#include "tests/testing/source_tree.h"

namespace megatron {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Words = std::vector<std::string>;

struct Result {
  int status;
  std::string out, err;
};

Result run(const Words& args) {
  std::ostringstream out, err;
  const int status = data_command(args, out, err);
  return {status, out.str(), err.str()};
}

class DataInspect : public ::testing::Test {
 protected:
  DataInspect() {
    IndexedDatasetBuilder builder(prefix_, {.token_type = TokenType::kUInt16});
    for (const std::string text : {"hello ", "", "world, ", "this is text."}) {
      const std::vector<int64_t> tokens(text.begin(), text.end());
      builder.add_item(tokens);
      builder.end_document();
    }
    builder.finalize();
  }
  Words words(const Words& more) const {
    Words all = {"inspect", "--data-path", prefix_};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  const testing::ScratchDirectory scratch_;
  const std::string prefix_ = scratch_.file("text");
};

TEST_F(DataInspect, PrintsTheContentsOfTheFiles) {
  const Result result = run(words({}));
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, prefix_ +
                            "\n"
                            "  documents  4\n"
                            "  sequences  4 (1 empty)\n"
                            "  tokens     26 of type uint16\n"
                            "  lengths    0 to 13 tokens, mean 6.5, median 7\n"
                            "  files      .idx 122 bytes, .bin 52 bytes\n");
}

TEST_F(DataInspect, PrintsTheSequencesOfEachSplit) {
  const Result result = run(words({"--seq-length", "5", "--split", "3,1,0"}));
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("  split \"3,1,0\", 5 tokens a sample:\n"
                                    "    train  sequences 0 to 3: 13 tokens, 2 samples a pass\n"
                                    "    valid  sequences 3 to 4: 13 tokens, 2 samples a pass\n"
                                    "    test   nothing\n"));
}

TEST_F(DataInspect, ShowsASampleWithItsText) {
  const Result result = run(words({"--seq-length", "12", "--split", "3,1,0", "--index-split", "valid", "--sample", "0",
                                   "--tokenizer-type", "ByteLevelTokenizer"}));
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("\nsample 0 of 1 (valid), seed 1234\n"
                                    "  tokens     116 104 105 115 32 105 115 32 116 101 120 116\n"
                                    "  last label 46\n"
                                    "  untrained  none\n"
                                    "  cuts       none\n"
                                    "  text\nthis is text\n"));
}

TEST_F(DataInspect, ShowsADocumentWithItsText) {
  IndexedDatasetBuilder builder(scratch_.file("two"), {.token_type = TokenType::kUInt16});
  for (const std::string text : {"a", "bc", "", "def"}) {
    builder.add_item(std::vector<int64_t>(text.begin(), text.end()));
    if (text != "bc") builder.end_document();
  }
  builder.finalize();
  const auto show = [&](const std::string& document) {
    return run({"inspect", "--data-path", scratch_.file("two"), "--document", document, "--tokenizer-type",
                "ByteLevelTokenizer"});
  };
  EXPECT_THAT(show("1").out, HasSubstr("\ndocument 1 of 3: 2 sequences, 2 tokens\n"
                                       "  tokens     98 99\n"
                                       "  text\nbc\n"));
  EXPECT_THAT(show("2").out, HasSubstr("  tokens     100 101 102\n  text\ndef\n"));
  EXPECT_EQ(show("3").status, static_cast<int>(ExitCode::kUsage));
  EXPECT_THAT(show("3").err, HasSubstr("--document 3: " + scratch_.file("two") + " has 3 documents, numbered from 0"));
}

TEST_F(DataInspect, WritesNoFiles) {
  run(words({"--seq-length", "5", "--split", "1,0,0", "--sample", "1"}));
  int num_files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::recursive_directory_iterator(scratch_.path())) ++num_files;
  EXPECT_EQ(num_files, 2);
}

TEST_F(DataInspect, NamesTheMemberOfABlend) {
  const Result result = run({"inspect", "--data-path", "1", prefix_, "3", prefix_, "--split", "1,0,0", "--seq-length",
                             "5", "--sample", "2", "--num-samples", "10"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("sample 2 of 11 (train), seed 1234, from " + prefix_));
}

TEST_F(DataInspect, ReportsMistakes) {
  const Words sample = words({"--seq-length", "5", "--split", "1,0,0", "--sample", "100"});
  EXPECT_THAT(run(sample).err, HasSubstr("--sample 100: the train split has 5 samples, numbered from 0"));
  EXPECT_EQ(run(sample).status, static_cast<int>(ExitCode::kUsage));
  EXPECT_THAT(run(words({"--sample", "1"})).err, HasSubstr("--sample needs --seq-length"));
  EXPECT_THAT(run({"inspect"}).err, HasSubstr("--data-path is missing"));
  EXPECT_THAT(run({"list"}).err, HasSubstr("there is no \"data list\". Usage: megatron data inspect"));
  const Result missing = run({"inspect", "--data-path", prefix_ + "x"});
  EXPECT_EQ(missing.status, static_cast<int>(ExitCode::kData));
  EXPECT_THAT(missing.err, HasSubstr(prefix_ + "x.idx: no such file"));
}

TEST_F(DataInspect, ChecksTokensAgainstTheVocabulary) {
  const Result result = run(words({"--seq-length", "5", "--split", "1,0,0", "--sample", "0", "--tokenizer-type",
                                   "NullTokenizer", "--vocab-size", "50"}));
  EXPECT_EQ(result.status, static_cast<int>(ExitCode::kData));
  EXPECT_THAT(result.err, HasSubstr("is not in the vocabulary of 50 tokens"));
}

class DataCheck : public ::testing::Test {
 protected:
  /// Three documents; the second one is empty and the third one has two sequences.
  template <class Tokens>
  std::string write(const std::string& name, TokenType type, const Tokens& last) {
    IndexedDatasetBuilder builder(scratch_.file(name), {.token_type = type});
    const std::vector<int64_t> first = {1, 2, 3};
    builder.add_item(first);
    builder.end_document();
    builder.end_document();
    builder.add_item(first);
    builder.add_item(last);
    builder.end_document();
    builder.finalize();
    return scratch_.file(name);
  }
  const testing::ScratchDirectory scratch_;
};

TEST_F(DataCheck, NamesDocumentPositionByteAndTokenOfTheFirstFault) {
  const std::vector<int64_t> tokens = {9, 50, 4, 60};
  const std::string good = write("good", TokenType::kUInt16, tokens);
  const Result right = run({"check", good, "--vocab-size", "61"});
  EXPECT_EQ(right.status, 0) << right.err;
  EXPECT_EQ(right.out, good + ": 3 documents, 3 sequences, 10 tokens of uint16, the largest 60: no fault\n");
  EXPECT_EQ(run({"check", good}).status, 0) << "without a vocabulary any token is right";
  EXPECT_EQ(run({"check", good + ".idx", "--tokenizer-type", "ByteLevelTokenizer"}).status, 0);

  const Result wrong = run({"check", good, "--vocab-size", "50", "--no-mmap-bin-files"});
  EXPECT_EQ(wrong.status, static_cast<int>(ExitCode::kData));
  EXPECT_THAT(wrong.err, HasSubstr("good.bin: token 50 at byte 14 (document 2, sequence 2, position 1) is not in the "
                                   "vocabulary of 50 tokens"));
}

TEST_F(DataCheck, ShowsProgressAsPlainLinesBesideTheReportWithoutATerminal) {
  const std::string good = write("good", TokenType::kInt32, std::vector<int64_t>(150000, 7));
  const Result result = run({"check", good});
  EXPECT_THAT(result.err, ::testing::MatchesRegex("checking .*good: 150k/150k tokens \\(100%\\), .* tokens/s, 0:0.\n"));
  EXPECT_THAT(result.out, Not(HasSubstr("checking")));
}

TEST_F(DataCheck, FindsNegativeTokensAndFaultsBehindManyBlocks) {
  std::vector<int64_t> tokens(300000, 7);
  tokens[299998] = -5;
  const std::string negative = write("negative", TokenType::kInt32, tokens);
  const std::vector<int64_t> few = {1};
  const std::string good = write("good", TokenType::kInt64, few);
  const Result result = run({"check", negative, good});
  EXPECT_EQ(result.status, static_cast<int>(ExitCode::kData));
  EXPECT_THAT(result.out, HasSubstr(good + ": 3 documents")) << "the others are checked as well";
  EXPECT_THAT(result.err,
              HasSubstr("negative.bin: token -5 at byte 1200016 (document 2, sequence 2, position 299998)"));
}

TEST_F(DataCheck, ADamagedIndexIsAFault) {
  const std::vector<int64_t> tokens = {9};
  const std::string prefix = write("short", TokenType::kUInt16, tokens);
  std::filesystem::resize_file(prefix + ".bin", 4);
  const Result result = run({"check", prefix});
  EXPECT_EQ(result.status, static_cast<int>(ExitCode::kData));
  EXPECT_THAT(result.err, HasSubstr(prefix));
  EXPECT_THAT(run({"check"}).err, HasSubstr("there is nothing to check"));
}

TEST_F(DataCheck, EncodesConversationsAndNamesBadLines) {
  const Words flags = {"--sft",
                       "--sft-tokenizer-prompt-format",
                       "identity",
                       "--seq-length",
                       "30",
                       "--tokenizer-type",
                       "SFTTokenizer",
                       "--tokenizer-model",
                       testing::golden_path("data/sft/tokenizer")};
  const auto check = [&](const std::string& path) {
    Words words = {"check", path};
    words.insert(words.end(), flags.begin(), flags.end());
    return run(words);
  };
  const std::string golden = testing::golden_path("data/sft/rows.jsonl");
  const Result right = check(golden);
  EXPECT_EQ(right.status, 0) << right.err;
  EXPECT_THAT(right.out, HasSubstr("rows.jsonl: 10 lines, 13 conversations, "));
  EXPECT_THAT(right.out, HasSubstr(" lines have more than 30 and are cut: no fault"));

  const std::string path = scratch_.file("chats.jsonl");
  std::ofstream(path) << "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}\n[]\n\n{\"text\": 1}\n";
  const Result wrong = check(path);
  EXPECT_EQ(wrong.status, static_cast<int>(ExitCode::kData));
  EXPECT_THAT(wrong.err, HasSubstr("chats.jsonl:2: the line is not a JSON object"));
  EXPECT_THAT(wrong.err, HasSubstr("chats.jsonl:4: the line is not a JSON object"));
  EXPECT_THAT(wrong.err, HasSubstr("chats.jsonl: 2 of 3 lines are bad"));
  EXPECT_THAT(run({"check", path, "--seq-length", "3"}).err, HasSubstr("--seq-length needs --sft"));
}

TEST(Data, HasHelp) {
  for (const Words& words : {Words{"--help"}, Words{"inspect", "--help"}}) {
    const Result result = run(words);
    EXPECT_EQ(result.status, 0);
    EXPECT_THAT(result.out, HasSubstr("usage: megatron data inspect"));
    EXPECT_THAT(result.out, HasSubstr("--seq-length"));
  }
}

}  // namespace
}  // namespace megatron
