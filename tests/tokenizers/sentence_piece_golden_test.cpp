// Answers of sentencepiece 0.2.3, from tests/golden/tokenizers/sentencepiece.
#include <gtest/gtest.h>
#include <simdjson.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "megatron/tokenizers/sentence_piece_tokenizer.h"
#include "tests/testing/source_tree.h"

namespace megatron {
namespace {
using Json = simdjson::dom::element;

bool has(Json row, const char* field) { return row[field].error() == simdjson::SUCCESS; }
std::string text_of(Json row, const char* field) { return std::string(row[field].get_string().value()); }

/// Two cuts into the same pieces are equally likely; of such the library's versions 0.1.97 and 0.2.3 may take another.
bool is_tie(std::vector<TokenId> a, std::vector<TokenId> b) {
  std::ranges::sort(a);
  std::ranges::sort(b);
  return a == b;
}

class SentencePieceGolden : public ::testing::TestWithParam<std::string> {};

TEST_P(SentencePieceGolden, IdsAndTextAreThoseOfTheReference) {
  if (!has_sentence_piece()) GTEST_SKIP() << "this build has no SentencePiece";
  const std::string stem = testing::golden_path("tokenizers/sentencepiece/" + GetParam());
  const SentencePieceTokenizer tokenizer({.path = stem + ".model"});
  const auto encoder = tokenizer.make_encoder();
  simdjson::dom::parser parser;
  std::ifstream file(stem + ".jsonl");
  int64_t num_rows = 0, num_ties = 0;
  for (std::string line; std::getline(file, line); ++num_rows) {
    const Json row = parser.parse(line).value();
    if (has(row, "bytes")) continue;  // no UTF-8: refused
    std::vector<TokenId> expected, ids;
    for (const Json id : row["ids"].get_array()) expected.push_back(static_cast<TokenId>(int64_t{id}));
    EXPECT_EQ(tokenizer.decode(expected), text_of(row, has(row, "decoded") ? "decoded" : "text"));
    if (has(row, "decode_only")) continue;
    encoder->append(text_of(row, "text"), ids);
    num_ties += ids != expected && is_tie(ids, expected);
    EXPECT_TRUE(ids == expected || is_tie(ids, expected)) << ::testing::PrintToString(text_of(row, "text"));
  }
  EXPECT_GT(num_rows, 0);
  EXPECT_LE(num_ties, 1 + num_rows / 100);
}

INSTANTIATE_TEST_SUITE_P(All, SentencePieceGolden,
                         ::testing::Values("bpe", "bpe_byte_fallback", "char", "unigram",
                                           "unigram_byte_fallback_noprefix", "unigram_nmt_nfkc_cf", "word"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace megatron
