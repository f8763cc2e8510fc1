// Made-up texts, encoded by the PyPI packages tokenizers, tiktoken and sentencepiece:
//   MEGATRON_REFERENCE_PYTHON=/path/to/python ctest -L reference
// MEGATRON_REFERENCE_TEXTS: number of texts for each tokenizer.
#include <gtest/gtest.h>
#include <simdjson.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "megatron/tokenizers/json_string.h"
#include "megatron/tokenizers/sentence_piece_tokenizer.h"
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

/// Two cuts into the same pieces are equally likely; of such SentencePiece's versions may take another.
bool is_tie(std::vector<TokenId> a, std::vector<TokenId> b) {
  std::ranges::sort(a);
  std::ranges::sort(b);
  return a == b;
}

void expect_answers(const Tokenizer& tokenizer, const std::string& path, bool allows_ties = false) {
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
    const bool is_same = allows_ties ? is_tie(ids, expected) : ids == expected;
    EXPECT_TRUE(is_same) << ::testing::PrintToString(text) << ::testing::PrintToString(ids)
                         << ::testing::PrintToString(expected);
    const std::string decoded = tokenizer.decode(expected);
    EXPECT_EQ(decoded, row["decoded"].get_string().value()) << ::testing::PrintToString(text);
    num_different += !is_same || decoded != row["decoded"].get_string().value();
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

class SentencePieceReference : public ::testing::TestWithParam<std::string> {};

TEST_P(SentencePieceReference, GivesTheSameIdsAndText) {
  if (!has_sentence_piece()) GTEST_SKIP() << "this build has no SentencePiece";
  const testing::ScratchDirectory directory;
  const std::string model = testing::golden_path("tokenizers/sentencepiece/" + GetParam() + ".model");
  const std::string answers = answers_of("sentencepiece", model, directory);
  if (answers.empty()) GTEST_SKIP() << "Set MEGATRON_REFERENCE_PYTHON to a Python that has the package sentencepiece.";
  expect_answers(*make_tokenizer({.type = "SentencePieceTokenizer", .model = model}), answers, true);
}

INSTANTIATE_TEST_SUITE_P(All, SentencePieceReference,
                         ::testing::Values("bpe", "bpe_byte_fallback", "char", "unigram",
                                           "unigram_byte_fallback_noprefix", "unigram_nmt_nfkc_cf", "word"),
                         [](const auto& info) { return info.param; });

class TiktokenReference : public ::testing::TestWithParam<std::string> {};

TEST_P(TiktokenReference, GivesTheSameIdsAndText) {
  const testing::ScratchDirectory directory;
  // The special tokens follow the ranks, as those of the flags do.
  const std::string ranks = testing::golden_path("tokenizers/tiktoken/" + GetParam() + ".tiktoken");
  const std::string about = directory.file("about.json");
  simdjson::dom::parser parser;
  const std::string pattern(parser.load(testing::golden_path("tokenizers/tiktoken/" + GetParam() + ".json"))
                                .value()["pattern"]
                                .get_string()
                                .value());
  std::ofstream(about) << "{\"pattern\": " << json_string(pattern) << ", \"ranks_file\": " << json_string(ranks)
                       << R"(, "special_tokens": {"<|endoftext|>": 700, "<|fim|>": 701}})";
  const std::string answers = answers_of("tiktoken", about, directory);
  if (answers.empty()) GTEST_SKIP() << "Set MEGATRON_REFERENCE_PYTHON to a Python that has the package tiktoken.";
  expect_answers(*make_tokenizer({.type = "TikTokenizer",
                                  .model = ranks,
                                  .special_tokens = {"<|endoftext|>", "<|fim|>"},
                                  .tiktoken_pattern = GetParam()}),
                 answers);
}

INSTANTIATE_TEST_SUITE_P(All, TiktokenReference, ::testing::Values("r50k", "cl100k", "o200k"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace megatron
