// Data and tokenizer files that are missing, truncated or damaged.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/commands/bad_input.h"

namespace megatron::testing {
namespace {

constexpr ExitCode kDataError = ExitCode::kData;

/// Moves the second sequence by a token. 34 bytes and the lengths of 40 sequences come first.
const auto overwrite_pointer = [](const std::string& folder) {
  std::fstream index(folder + "/data.idx", std::ios::binary | std::ios::in | std::ios::out);
  constexpr int kSecondPointer = 34 + 40 * 4 + 8;
  index.seekg(kSecondPointer);
  const int low_byte = index.get();
  index.seekp(kSecondPointer);
  index.put(static_cast<char>(low_byte + 2));
};

TEST(BadFiles, TrainingAndInspectionRejectBadTokenFiles) {
  for (const Command command : {kPretrain, kInspect}) {
    expect_refusals({
        {"no index", command, {}, kDataError, {"@/data.idx: no such file", "without suffix"}, remove("data.idx")},
        {"no tokens", command, {}, kDataError, {"@/data.bin: no such file", "without suffix"}, remove("data.bin")},
        {"suffix given", command, {"--data-path", "@/data.bin"}, kDataError, {"data.bin.idx", "without suffix"}},
        {"magic", command, {}, kDataError, {"data.idx", "preprocess the data again"}, overwrite("data.idx", 0, "X")},
        {"version",
         command,
         {},
         kDataError,
         {"version 7", "Preprocess the data again"},
         overwrite("data.idx", 9, "\7")},
        {"type", command, {}, kDataError, {"token type code 119", "damaged"}, overwrite("data.idx", 17, "w")},
        {"count",
         command,
         {},
         kDataError,
         {"damaged or truncated"},
         overwrite("data.idx", 18, std::string(7, '\xff') + "\x7f")},
        {"length", command, {}, kDataError, {"length -1", "damaged"}, overwrite("data.idx", 34, "\xff\xff\xff\xff")},
        {"empty index", command, {}, kDataError, {"has 0 bytes", "copy it again"}, truncate("data.idx", 0)},
        {"5 bytes", command, {}, kDataError, {"has 5 bytes", "copy it again"}, truncate("data.idx", 5)},
        {"33 bytes", command, {}, kDataError, {"has 33 bytes", "copy it again"}, truncate("data.idx", 33)},
        {"100 bytes", command, {}, kDataError, {"100 bytes", "copy it again"}, truncate("data.idx", 100)},
        {"last byte", command, {}, kDataError, {"damaged or truncated"}, truncate("data.idx", -1)},
        {"empty tokens", command, {}, kDataError, {"has only 0", "copy both again"}, truncate("data.bin", 0)},
        {"longer tokens",
         command,
         {},
         kDataError,
         {"data.bin has", "copy both again"},
         [](const std::string& folder) {
           std::ofstream(folder + "/data.bin", std::ios::app | std::ios::binary) << "xx";
         }},
        {"other type", command, {}, kDataError, {"tokens are uint8", "damaged"}, overwrite("data.idx", 17, "\1")},
        {"pointer of other tokens", command, {}, kDataError, {"follow each other without gaps"}, overwrite_pointer},
        {"last token", command, {}, kDataError, {"data.bin", "copy both again"}, truncate("data.bin", -2)},
    });
  }
}

/// The open of a FIFO waits until another program writes to it.
TEST(BadFiles, RejectsFifosAtOnce) {
  const Words texts = {"It is a FIFO (named pipe), not a regular file"};
  for (const std::string name : {"data.idx", "data.bin"})
    for (const Command command : {Command::kData, kPretrain})
      expect_refusal({name, command, {}, kDataError, joined(texts, {"@/" + name}), fifo(name)});
  expect_refusal(
      {"vocabulary", kPretrain, {}, kDataError, joined(texts, {"--vocab-file @/chars.txt"}), fifo("chars.txt")});
}

TEST(BadFiles, RejectsTokensOutsideTheVocabulary) {
  expect_refusal({"all bits set",
                  kPretrain,
                  {},
                  kDataError,
                  {"65535", "vocabulary"},
                  overwrite("data.bin", 0, std::string(4000, '\xff'))});
}

/// 10 characters in 128 or 256 padded rows of the embedding: padding has no logit.
TEST(BadFiles, RejectsTokensInThePaddingOfTheVocabularyOnEveryLayout) {
  for (const Words& layout : {Words{}, Words{"--nproc-per-node", "2", "--tensor-model-parallel-size", "2"}})
    for (const char* token : {"\x0a", "\x78"}) {
      std::string tokens;
      for (int i = 0; i < 2000; ++i) tokens += std::string(token) + '\0';
      expect_refusal({"padding",
                      kPretrain,
                      layout,
                      kDataError,
                      {"the vocabulary of 10 tokens"},
                      overwrite("data.bin", 0, tokens)});
    }
}

TEST(BadFiles, RejectsBadListsOfData) {
  const Words args = {"--data-args-path", "@/args", "--split", "1,1,1"};
  BadInput missing{"no list", kPretrain, args, kDataError, {"@/args"}};
  missing.without = {"--data-path"};
  expect_refusal(missing);
}

TEST(BadFiles, RejectsAnEmptyValidationSetBeforeTheFirstStep) {
  const auto make_tiny = [](const std::string& folder) {
    write("tiny.txt", "abc")(folder);
    const Words words = {"--input",          folder + "/tiny.txt", "--input-format", "text",
                         "--output-prefix",  folder + "/tiny",     "--vocab-file",   folder + "/chars.txt",
                         "--tokenizer-type", "CharTokenizer"};
    EXPECT_EQ(run(kPreprocess, words).status, 0);
  };
  BadInput tiny{"tiny",
                kPretrain,
                words_of("--train-data-path @/data --valid-data-path @/data @/tiny_text_document --full-validation"
                         " --multiple-validation-sets --validation-set-names big small --eval-interval 1"),
                ExitCode::kUsage,
                {"validation set 2 of 2 'small'", "@/tiny_text_document", "has no sample", "--seq-length 16"},
                make_tiny};
  tiny.without = {"--data-path", "--split"};
  expect_refusal(tiny);
}

TEST(BadFiles, RejectsBadJsonLinesWithTheLine) {
  const auto third = [](const std::string& name, const std::string& line, Words texts) {
    texts.push_back("@/in.jsonl line 3");
    return BadInput{name,       kPreprocess, {"--input", "@/in.jsonl"},
                    kDataError, texts,       write("in.jsonl", "{\"text\":\"a\"}\n{\"text\":\"b\"}\n" + line + "\n")};
  };
  expect_refusals({
      third("cut off", "{\"text\":", {"not a JSON object"}),
      third("no object", "[1]", {"not a JSON object"}),
      third("no key", "{\"txt\":\"c\"}", {"no key 'text'", "--json-keys"}),
      third("number", "{\"text\":5}", {"neither a string nor a list of strings"}),
      third("no UTF-8", "{\"text\":\"\xff\"}", {"not UTF-8", "iconv"}),
      third("broken elsewhere", "{\"text\":\"x\",\"d\":garbage}", {"a value is expected at byte 17, not 'garbage}'"}),
      third("empty", "", {"the line is empty", "sed -i"}),
      {"cut gzip",
       kPreprocess,
       {"--input", "@/in.gz"},
       kDataError,
       {"@/in.gz: ", "gzip", "Copy or make the file again"},
       write("in.gz", std::string("\x1F\x8B\x08\0\0\0\0\0\0\3\xCB\xCF\x4B\xE5", 14))},
      {"no file", kPreprocess, {"--input", "@/none"}, kDataError, {"--input @/none: there is no such file"}},
      {"folder", kPreprocess, {"--input", "@/ckpt"}, ExitCode::kIo, {"it is a directory"}},
      {"text", kPreprocess, {}, kDataError, {"@/text.txt line 1: not a JSON object", "give --input-format text"}},
  });
}

TEST(BadFiles, RejectsBadTokenizerFiles) {
  const auto preprocess = [](const std::string& name, const std::string& type, Words files, Words texts,
                             std::function<void(const std::string&)> damage) {
    Words words = {"--input-format", "text", "--tokenizer-type", type, "--vocab-file", "@/v"};
    words.insert(words.end(), files.begin(), files.end());
    return BadInput{name, kPreprocess, words, kDataError, texts, std::move(damage)};
  };
  const Words merges = {"--merge-file", "@/m"};
  expect_refusals({
      preprocess("missing", "CharTokenizer", {}, {"--vocab-file @/v", "No such file", "--make-char-vocab"}, {}),
      preprocess("empty", "CharTokenizer", {}, {"vocabulary is empty"}, write("v", "")),
      preprocess("no UTF-8", "CharTokenizer", {}, {"@/v is not UTF-8"}, write("v", "a\xff")),
      preprocess("twice", "CharTokenizer", {}, {"entries 0 and 2", "U+0061"}, write("v", "aba")),
      preprocess("too few", "CharTokenizer", {}, {"@/text.txt line 1", "not among the 2", "--make-char-vocab"},
                 write("v", "ab")),
      preprocess("no JSON", "GPT2BPETokenizer", merges, {"@/v is not a JSON object"}, write("v", "abc")),
      preprocess("no merges", "GPT2BPETokenizer", merges, {"--merge-file @/m", "No such file"},
                 write("v", "{\"a\":0}")),
      {"training", kPretrain, {"--vocab-file", "@/v"}, kDataError, {"--vocab-file @/v", "No such file"}},
      {"name on a hub",
       kPretrain,
       {"--tokenizer-type", "HuggingFaceTokenizer", "--tokenizer-model", "meta-llama/Llama-3-8B"},
       kDataError,
       {"--tokenizer-model meta-llama/Llama-3-8B", "not fetched by their name on a hub"}},
      {"generation", kGenerate, {"--vocab-file", "@/v"}, kDataError, {"--vocab-file @/v", "No such file"}},
      {"other", kGenerate, {"--vocab-file", "@/v"}, ExitCode::kCheckpoint, {"10", "3 tokens"}, write("v", "abc")},
  });
}

}  // namespace
}  // namespace megatron::testing
