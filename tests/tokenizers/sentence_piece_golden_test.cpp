// Answers of sentencepiece 0.2.3, from tests/golden/tokenizers/sentencepiece.
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "megatron/tokenizers/sentence_piece_tokenizer.h"
#include "tests/testing/source_tree.h"
#include "tests/tokenizers/golden_rows.h"

namespace megatron {
namespace {
using Json = testing::JsonRow;
using testing::for_each_row;
using testing::has;
using testing::ids_of;
using testing::text_of;

class SentencePieceGolden : public ::testing::TestWithParam<std::string> {};

TEST_P(SentencePieceGolden, IdsAndTextAreThoseOfTheReference) {
  if (!has_sentence_piece()) GTEST_SKIP() << "this build has no SentencePiece";
  const std::string stem = testing::golden_path("tokenizers/sentencepiece/" + GetParam());
  const SentencePieceTokenizer tokenizer({.path = stem + ".model"});
  const auto encoder = tokenizer.make_encoder();
  for_each_row(stem + ".jsonl", [&](Json row) {
    if (has(row, "bytes")) return;  // no UTF-8: refused
    const std::vector<TokenId> expected = ids_of(row, "ids");
    std::vector<TokenId> ids;
    EXPECT_EQ(tokenizer.decode(expected), text_of(row, "decoded", "text"));
    if (has(row, "decode_only")) return;
    encoder->append(text_of(row, "text"), ids);
    EXPECT_EQ(ids, expected) << ::testing::PrintToString(text_of(row, "text"));
  });
}

/// The library's own ids: in the legacy mode it is asked for the whole text in front of a special token.
std::vector<TokenId> ids_of_whole_text(TextEncoder& legacy, const std::string& text) {
  std::vector<TokenId> ids;
  legacy.append(text + "<X>", ids);
  ids.pop_back();
  return ids;
}

TEST(SentencePieceWords, OfByteFallbackBpeHaveTheIdsOfTheWholeText) {
  if (!has_sentence_piece()) GTEST_SKIP() << "this build has no SentencePiece";
  const std::string path = testing::golden_path("tokenizers/sentencepiece/bpe_byte_fallback.model");
  const SentencePieceTokenizer tokenizer({.path = path});
  const SentencePieceTokenizer whole({.path = path, .special_tokens = {"<X>"}, .legacy = true});
  const auto encoder = tokenizer.make_encoder(), legacy = whole.make_encoder();
  const std::vector<std::string> parts = {" ",          "  ",     "   ", "\u2581", "\u2581 ", " \u2581", "a",
                                          "the",        "of and", "\n",  "\t",     "\r",      "\u00e9",  "\u4e2d",
                                          "\U0001F600", "12",     "<s>", "</s>",   "\u00a0",  "hello",   "world"};
  std::mt19937 random(7);
  for (int round = 0; round < 5000; ++round) {
    std::string text;
    for (size_t i = random() % 12; i > 0; --i) text += parts[random() % parts.size()];
    std::vector<TokenId> ids;
    encoder->append(text, ids);
    EXPECT_EQ(ids, ids_of_whole_text(*legacy, text)) << ::testing::PrintToString(text);
  }
}

INSTANTIATE_TEST_SUITE_P(All, SentencePieceGolden,
                         ::testing::Values("bpe", "bpe_byte_fallback", "char", "unigram",
                                           "unigram_byte_fallback_noprefix", "unigram_nmt_nfkc_cf", "word"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace megatron
