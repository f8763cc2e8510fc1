// Made-up texts, encoded by the PyPI packages tokenizers, tiktoken and sentencepiece:
//   MEGATRON_REFERENCE_PYTHON=/path/to/python ctest -L reference
// MEGATRON_REFERENCE_TEXTS: number of texts for each tokenizer.
#include <gtest/gtest.h>
#include <simdjson.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "megatron/tokenizers/tokenizer_factory.h"
#include "tests/testing/scratch_directory.h"
#include "tests/testing/source_tree.h"

namespace megatron {
namespace {

/// The answers of `kind` for the model in `path`, as JSON lines in a file of `directory`; empty without a Python.
std::string answers_of(const std::string& kind, const std::string& path, const testing::ScratchDirectory& directory) {
  const char* python = std::getenv("MEGATRON_REFERENCE_PYTHON");
  if (!python) return "";
  const char* count = std::getenv("MEGATRON_REFERENCE_TEXTS");
  const std::string answers = directory.file("answers.jsonl");
  const std::string command = std::string(python) + " " +
                              testing::source_path("tests/tokenizers/tokenizer_answers.py") + " " + kind + " " + path +
                              " 7 " + (count ? count : "3000") + " > " + answers;
  EXPECT_EQ(std::system(command.c_str()), 0) << command;
  return answers;
}

void expect_answers(const Tokenizer& tokenizer, const std::string& path) {
  const auto encoder = tokenizer.make_encoder();
  simdjson::dom::parser parser;
  std::ifstream file(path);
  int64_t num_lines = 0, num_different = 0;
  for (std::string line; std::getline(file, line) && num_different < 5; ++num_lines) {
    const simdjson::dom::element row = parser.parse(line).value();
    const std::string text(row["text"].get_string().value());
    std::vector<TokenId> expected, ids;
    for (const auto id : row["ids"].get_array()) expected.push_back(static_cast<TokenId>(int64_t{id}));
    encoder->append(text, ids);
    EXPECT_EQ(ids, expected) << ::testing::PrintToString(text);
    const std::string decoded = tokenizer.decode(expected);
    EXPECT_EQ(decoded, row["decoded"].get_string().value()) << ::testing::PrintToString(text);
    num_different += ids != expected || decoded != row["decoded"].get_string().value();
  }
  EXPECT_GT(num_lines, 0);
}

class HuggingFaceReference : public ::testing::TestWithParam<std::string> {};

TEST_P(HuggingFaceReference, GivesTheSameIdsAndText) {
  const testing::ScratchDirectory directory;
  const std::string model = testing::golden_path("tokenizers/hf/" + GetParam() + ".json");
  const std::string answers = answers_of("hugging_face", model, directory);
  if (answers.empty()) GTEST_SKIP() << "Set MEGATRON_REFERENCE_PYTHON to a Python that has the package tokenizers.";
  expect_answers(*make_tokenizer({.type = "HuggingFaceTokenizer", .model = model}), answers);
}

INSTANTIATE_TEST_SUITE_P(All, HuggingFaceReference,
                         ::testing::Values("added_torture", "bpe_end_of_word", "deepseek", "gpt2",
                                           "llama2_metaspace_first", "llama2_metaspace_never_nofuse",
                                           "llama2_normalizer", "llama3", "o200k", "qwen2", "roberta", "unigram",
                                           "unigram_byte_fallback", "unigram_precompiled", "wordlevel",
                                           "wordpiece_cased", "wordpiece_uncased", "bpe_continuing_prefix"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace megatron
