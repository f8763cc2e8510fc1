// Tokenizers whose files other programs made: tiktoken, SentencePiece, BERT.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "megatron/base/error.h"
#include "megatron/tokenizers/base64.h"
#include "megatron/tokenizers/bert_word_piece_tokenizer.h"
#include "megatron/tokenizers/sentence_piece_tokenizer.h"
#include "megatron/tokenizers/tiktoken_tokenizer.h"
#include "tests/testing/scratch_directory.h"
#include "tests/testing/source_tree.h"

namespace megatron {
namespace {
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::string kMegatronList = testing::golden_path("tokenizers/tiktoken/megatron.json");
const std::string kRanks = testing::golden_path("tokenizers/tiktoken/cl100k.tiktoken");
const std::string kSentencePiece = testing::golden_path("tokenizers/sentencepiece/bpe.model");

template <class E, class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const E& error) {
    return error.what();
  }
  return "no error";
}

TEST(Base64, DecodesWhatRfc4648SaysAndRefusesTheRest) {
  EXPECT_EQ(base64_decoded(""), "");
  EXPECT_EQ(base64_decoded("Zg=="), "f");
  EXPECT_EQ(base64_decoded("Zm8="), "fo");
  EXPECT_EQ(base64_decoded("Zm9v"), "foo");
  EXPECT_EQ(base64_decoded("/+8="), "\xFF\xEF");
  for (const char* text : {"Z", "Zg", "Zg=", "Zg= ", "Z===", "Zh==", "Zm9!", "===="})
    EXPECT_EQ(base64_decoded(text), std::nullopt) << text;
}

TEST(Tiktoken, SpecialTokensOfMegatronsListComeFirstAndDecodeAsText) {
  const TiktokenTokenizer tokenizer({.path = kMegatronList, .vocab_size = 713, .num_special_tokens = 13});
  EXPECT_EQ(tokenizer.vocab_size(), 713);
  EXPECT_EQ(tokenizer.encode("<s>a</s><SPECIAL_9>"), (std::vector<TokenId>{1, 13 + 'a', 2, 9}));
  EXPECT_EQ(tokenizer.decode(std::vector<TokenId>{1, 13 + 'a', 2, 9}), "<s>a</s><SPECIAL_9>");
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("日本語")), "日本語") << "characters of several tokens stay whole";
  EXPECT_EQ(tokenizer.files().at(0).name, "tokenizer.json");
}

TEST(Tiktoken, IdsOfATiktokenFileAreRanksAndGivenSpecialTokensFollow) {
  const TiktokenTokenizer tokenizer(
      {.path = kRanks, .pattern = "cl100k", .special_tokens = {"<|fim|>", "<|endoftext|>"}});
  EXPECT_EQ(tokenizer.vocab_size(), 702);
  EXPECT_EQ(tokenizer.eod(), 701);
  EXPECT_EQ(tokenizer.encode("a<|fim|>"), (std::vector<TokenId>{'a', 700}));
  EXPECT_EQ(tokenizer.files().at(0).name, "tokenizer.tiktoken");
}

TEST(Tiktoken, NumbersAndTokensThatDoNotFitAreRefused) {
  EXPECT_THAT(error_of<DataError>([] { TiktokenTokenizer({.path = kMegatronList}); }),
              HasSubstr("700 tokens, fewer than the 130072"));
  EXPECT_THAT(error_of<ConfigError>([] { TiktokenTokenizer({.path = kMegatronList, .vocab_size = 1000}); }),
              HasSubstr("leaves 0 tokens"));
  EXPECT_THAT(error_of<ConfigError>(
                  [] { TiktokenTokenizer({.path = kMegatronList, .vocab_size = 1700, .special_tokens = {"<s>"}}); }),
              HasSubstr("<unk> is missing"));
  EXPECT_THAT(error_of<ConfigError>([] { TiktokenTokenizer({.path = kRanks}); }), HasSubstr("--tiktoken-pattern"));
  EXPECT_THAT(error_of<ConfigError>([] { TiktokenTokenizer({.path = kRanks, .pattern = "v3"}); }),
              HasSubstr("v3 is unknown"));
}

TEST(Tiktoken, DamagedFilesAreRefusedWithThePlace) {
  const testing::ScratchDirectory directory;
  const std::string path = directory.file("ranks");
  const auto error = [&](const std::string& content) {
    std::ofstream(path) << content;
    return error_of<DataError>([&] { TiktokenTokenizer({.path = path, .pattern = "v2"}); });
  };
  EXPECT_THAT(error("IQ== 0\n!! 1\n"), HasSubstr("line 2: '!!' is not the base64"));
  EXPECT_THAT(error("IQ== 1\n"), HasSubstr("line 1 has the rank 1; 0 is next"));
  EXPECT_THAT(error("IQ==\n"), HasSubstr("line 1: 'IQ=='"));
  EXPECT_THAT(error("IQ== 0\n"), HasSubstr("no token for the byte 0x00"));
  EXPECT_THAT(error(R"([{"rank": 0, "token_bytes": "AA=="}])"), HasSubstr("entry 0 does not have exactly"));
  EXPECT_THAT(error(R"([{"rank": 0, "token_bytes": "IQ==", "token_str": "!"}])"), HasSubstr("is not the byte 0"));
  EXPECT_THAT(error("{}"), HasSubstr("neither Megatron's JSON list"));
}

TEST(SentencePiece, SpecialTokensNeedTheLegacyMode) {
  if (!has_sentence_piece()) GTEST_SKIP() << "this build has no SentencePiece";
  EXPECT_THAT(
      error_of<ConfigError>([] { SentencePieceTokenizer({.path = kSentencePiece, .special_tokens = {"<x>"}}); }),
      HasSubstr("--tokenizer-sentencepiece-legacy"));
  const SentencePieceTokenizer plain({.path = kSentencePiece});
  const SentencePieceTokenizer legacy({.path = kSentencePiece, .special_tokens = {"<x>", "</s>"}, .legacy = true});
  EXPECT_EQ(plain.eod(), 2);
  EXPECT_EQ(plain.pad(), -1) << "the model has none";
  EXPECT_EQ(legacy.vocab_size(), plain.vocab_size() + 1) << "</s> is in the model";
  std::vector<TokenId> expected = plain.encode("the");
  expected.push_back(static_cast<TokenId>(plain.vocab_size()));
  expected.push_back(2);
  for (const TokenId id : plain.encode("of")) expected.push_back(id);
  EXPECT_EQ(legacy.encode("the<x></s>of"), expected);
  EXPECT_EQ(legacy.decode(expected), "the <x>  </s> of");
}

TEST(SentencePiece, SpacesThatTheModelDropsCanBeKept) {
  if (!has_sentence_piece()) GTEST_SKIP() << "this build has no SentencePiece";
  const SentencePieceTokenizer dropping({.path = kSentencePiece});
  const SentencePieceTokenizer keeping({.path = kSentencePiece, .ignore_extra_whitespaces = false});
  EXPECT_EQ(dropping.encode("the  of"), dropping.encode("the of"));
  EXPECT_EQ(dropping.decode(keeping.encode("the  of")), "the  of");
  EXPECT_EQ(keeping.encode("the of"), dropping.encode("the of"));
}

TEST(SentencePiece, AFileThatIsNoModelIsRefused) {
  if (!has_sentence_piece()) GTEST_SKIP() << "this build has no SentencePiece";
  EXPECT_THAT(error_of<DataError>([] { SentencePieceTokenizer({.path = kRanks}); }),
              HasSubstr("is not a SentencePiece model"));
  EXPECT_THROW(SentencePieceTokenizer({.path = "/nowhere.model"}), DataError);
  EXPECT_THROW(SentencePieceTokenizer({.path = kSentencePiece}).encode("\xFF"), DataError);
}

class BertWordPiece : public ::testing::Test {
 protected:
  BertWordPiece() { std::ofstream(path_) << "[PAD]\n[UNK]\n[CLS]\n[SEP]\nhe\n##llo\nHe\n,\n"; }
  const testing::ScratchDirectory directory_;
  const std::string path_ = directory_.file("vocab.txt");
};

TEST_F(BertWordPiece, CutsWordsIntoTheLongestEntriesBetweenClsAndSep) {
  const BertWordPieceTokenizer lower({.vocab_file = path_});
  EXPECT_THAT(lower.encode("Hello, HÉ x"), ElementsAre(2, 4, 5, 7, 4, 1, 3));
  EXPECT_THAT(lower.encode("he[SEP]he"), ElementsAre(2, 4, 3, 4, 3)) << "special tokens inside of the text";
  EXPECT_EQ(lower.eod(), 3);
  EXPECT_EQ(lower.pad(), 0);
  EXPECT_EQ(lower.vocab_size(), 8);
  EXPECT_EQ(lower.decode(std::vector<TokenId>{4, 5, 7, 4}), "hello, he");
}

TEST_F(BertWordPiece, WithCaseHasHundredExtraTokensAndKeepsAccents) {
  const BertWordPieceTokenizer cased({.vocab_file = path_, .lower_case = false, .include_special_tokens = false});
  EXPECT_THAT(cased.encode("Hello HÉ <extra_id_99>"), ElementsAre(6, 5, 1, 107));
  EXPECT_EQ(cased.vocab_size(), 108);
}

TEST_F(BertWordPiece, FilesThatAreNoVocabularyAreRefused) {
  std::ofstream(path_) << "a\nb\na\n[UNK]\n[CLS]\n[SEP]\n";
  EXPECT_THAT(error_of<DataError>([&] { BertWordPieceTokenizer({.vocab_file = path_}); }),
              HasSubstr("'a' has the ids 0 and 2"));
  std::ofstream(path_) << "a\n";
  EXPECT_THAT(error_of<DataError>([&] { BertWordPieceTokenizer({.vocab_file = path_}); }), HasSubstr("has no token ["));
}

}  // namespace
}  // namespace megatron
