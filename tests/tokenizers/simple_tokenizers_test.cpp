// ByteLevelTokenizer, CharTokenizer, NullTokenizer and the factory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "megatron/base/error.h"
#include "megatron/tokenizers/byte_level_tokenizer.h"
#include "megatron/tokenizers/char_tokenizer.h"
#include "megatron/tokenizers/null_tokenizer.h"
#include "megatron/tokenizers/sentence_piece_tokenizer.h"
#include "megatron/tokenizers/tokenizer_factory.h"
#include "tests/testing/scratch_directory.h"
#include "tests/testing/source_tree.h"

namespace megatron {
namespace {
using ::testing::HasSubstr;
using Ids = std::vector<TokenId>;
const std::string kGpt2Folder = testing::golden_path("tokenizers/gpt2/");

std::string written_file(const std::string& name, const std::string& content) {
  static const megatron::testing::ScratchDirectory directory;  // tests run side by side, each in a process of its own
  const std::string path = directory.file(name);
  std::ofstream(path, std::ios::binary) << content;
  return path;
}
template <class E>
std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const E& error) {
    return error.what();
  }
  return "no error";
}

TEST(ByteLevelTokenizer, AnyBytesComeBackUnchanged) {
  const ByteLevelTokenizer tokenizer;
  std::string bytes;
  for (int b = 0; b < 256; ++b) bytes.push_back(static_cast<char>(b));
  Ids ids = tokenizer.encode(bytes);
  ASSERT_EQ(ids.size(), 256u);
  for (TokenId b = 0; b < 256; ++b) EXPECT_EQ(ids[static_cast<size_t>(b)], b);
  ids.push_back(tokenizer.eod().value());
  EXPECT_EQ(tokenizer.decode(ids), bytes);
  EXPECT_EQ(tokenizer.vocab_size(), 257);
  EXPECT_THROW(tokenizer.decode(Ids{257}), DataError);
}

TEST(CharTokenizer, HasOneIdPerCharacterInTheOrderOfTheVocabulary) {
  const CharTokenizer tokenizer({"\n", "b", "\xC3\xA9", "a"});
  EXPECT_EQ(tokenizer.encode("ab\xC3\xA9\n"), (Ids{3, 1, 2, 0}));
  EXPECT_EQ(tokenizer.decode(Ids{3, 1, 2, 0}), "ab\xC3\xA9\n");
  EXPECT_EQ(tokenizer.vocab_size(), 4);
  EXPECT_EQ(tokenizer.eod(), std::nullopt);
  EXPECT_EQ(tokenizer.identity()[2].second,
            "\nb\xC3\xA9"
            "a");
}

TEST(CharTokenizer, TextAndJsonVocabulariesAreTheSame) {
  const auto text = CharTokenizer::from_file(written_file("chars.txt", "\n b\xF0\x9F\x98\x80"));
  const auto json = CharTokenizer::from_file(written_file("chars.json", R"(["\n", " ", "b", "\ud83d\ude00"])"));
  EXPECT_EQ(text.identity(), json.identity());
  EXPECT_EQ(text.vocab_size(), 4);
}

TEST(CharTokenizer, TheVocabularyOfTinyShakespeareIsNanoGpts) {
  std::ifstream file(testing::source_path("data/tinyshakespeare.txt"));
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const std::vector<std::string> characters = distinct_characters(text);
  const CharTokenizer tokenizer(characters);
  EXPECT_EQ(tokenizer.vocab_size(), 65);
  EXPECT_EQ(characters.front(), "\n");
  EXPECT_EQ(characters.back(), "z");
  EXPECT_EQ(tokenizer.encode("hii there"), (Ids{46, 47, 47, 1, 58, 46, 43, 56, 43}));  // nanoGPT's lecture
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
}

TEST(CharTokenizer, BadVocabulariesAndTextsAreRefused) {
  EXPECT_THAT(error_of<DataError>([] { CharTokenizer({}); }), HasSubstr("empty"));
  EXPECT_THAT(error_of<DataError>([] { CharTokenizer({"a", "ab"}); }), HasSubstr("entry 1"));
  EXPECT_THAT(error_of<DataError>([] { CharTokenizer({"a", ""}); }), HasSubstr("entry 1"));
  EXPECT_THAT(error_of<DataError>([] { CharTokenizer({"a", "b", "a"}); }), HasSubstr("entries 0 and 2"));
  EXPECT_THAT(error_of<DataError>([] { CharTokenizer::from_file(written_file("bad.json", "{\"a\": 1}")); }),
              HasSubstr("not a JSON array"));
  EXPECT_THAT(error_of<DataError>([] { CharTokenizer::from_file(written_file("bad.json", "[\"a\", 1]")); }),
              HasSubstr("entry 1 is not a string"));
  EXPECT_THAT(error_of<DataError>([] { CharTokenizer::from_file(written_file("bad.txt", "a\xFF")); }),
              HasSubstr("not UTF-8"));
  const CharTokenizer tokenizer({"a"});
  EXPECT_THAT(error_of<DataError>([&] { tokenizer.encode("a\xE2\x82\xAC"); }), HasSubstr("U+20AC"));
  EXPECT_THAT(error_of<DataError>([&] { tokenizer.encode("A"); }), HasSubstr("U+0041"));
  EXPECT_THROW(tokenizer.encode("a\xFF"), DataError);
}

// Values of Megatron 0.20's NullTokenizer.
TEST(NullTokenizer, NumbersAreTheIds) {
  const NullTokenizer tokenizer({.vocab_size = 131072});
  EXPECT_EQ(tokenizer.encode("11 325 97"), (Ids{11, 325, 97}));
  EXPECT_EQ(tokenizer.encode("7\n"), (Ids{7}));
  EXPECT_EQ(tokenizer.decode(Ids{11, 325, 97}), "11 325 97");
  EXPECT_EQ(tokenizer.vocab_size(), 131072);
  EXPECT_EQ(tokenizer.eod(), 131071);
  EXPECT_EQ(tokenizer.pad(), -1);
  const NullTokenizer other({.vocab_size = 100, .eod = 5, .pad = 3});
  EXPECT_EQ(other.eod(), 5);
  EXPECT_EQ(other.pad(), 3);
  const std::string name = "megatron.core.tokenizers.text.text_tokenizer.MegatronTokenizerText";
  EXPECT_EQ(tokenizer.identity(),
            (TokenizerIdentity{
                {"class", name}, {"tokenizer_path", std::nullopt}, {"vocab_size", "131072"}, {"pad_id", "-1"}}));
  EXPECT_EQ(
      other.identity(),
      (TokenizerIdentity{
          {"class", name}, {"tokenizer_path", std::nullopt}, {"vocab_size", "100"}, {"eod_id", "5"}, {"pad_id", "3"}}));
}

TEST(NullTokenizer, WhatIsNoIdIsRefused) {
  const NullTokenizer tokenizer({.vocab_size = 100});
  for (const char* text : {"", " ", "1  2", "x", "1\n2", "1.5", "0x1", "99999999999999999999"})
    EXPECT_THAT(error_of<DataError>([&] { tokenizer.encode(text); }), HasSubstr("is not an integer")) << text;
  for (const char* text : {"100", "-1"})
    EXPECT_THAT(error_of<DataError>([&] { tokenizer.encode(text); }), HasSubstr("outside of the vocabulary")) << text;
  EXPECT_THROW(NullTokenizer({.vocab_size = 0}), ConfigError);
  EXPECT_THROW(NullTokenizer({.vocab_size = 10, .eod = 10}), ConfigError);
}

TEST(MakeTokenizer, MakesEachTypeThatItNames) {
  const std::string chars = written_file("factory.txt", "ab");
  for (const std::string& type : tokenizer_types()) {
    TokenizerOptions config{.type = type};
    if (type == "GPT2BPETokenizer")
      config.vocab_file = kGpt2Folder + "vocab.json", config.merge_file = kGpt2Folder + "merges.txt";
    if (type == "CharTokenizer") config.vocab_file = chars;
    if (type == "NullTokenizer") config.vocab_size = 10;
    if (type == "HuggingFaceTokenizer" || type == "Llama3Tokenizer" || type == "SFTTokenizer")
      config.model = testing::golden_path("tokenizers/hf/llama3.json");
    if (type.starts_with("BertWordPiece")) config.vocab_file = written_file("bert.txt", "[UNK]\n[CLS]\n[SEP]\n");
    if (type == "TikTokenizer")
      config.model = testing::golden_path("tokenizers/tiktoken/megatron.json"), config.vocab_size = 1700;
    if (tokenizer_reads(type, "--tokenizer-sentencepiece-legacy")) {
      if (!has_sentence_piece()) continue;
      config.model = testing::golden_path("tokenizers/sentencepiece/bpe.model");
    }
    EXPECT_GT(make_tokenizer(config)->vocab_size(), 0) << type;
  }
}

TEST(MakeTokenizer, TypesThatDoNotExistAreRefusedByNamingThoseThatDo) {
  const std::string later =
      error_of<NotSupported>([] { make_tokenizer({.type = "MultimodalTokenizer", .model = "x"}); });
  EXPECT_THAT(later, HasSubstr("MultimodalTokenizer"));
  for (const std::string& type : tokenizer_types()) EXPECT_THAT(later, HasSubstr(type));
  EXPECT_THAT(error_of<ConfigError>([] { make_tokenizer({.type = "gpt2"}); }), HasSubstr("gpt2 is unknown"));
  EXPECT_THAT(error_of<ConfigError>([] { make_tokenizer({.type = ""}); }), HasSubstr("--tokenizer-type is missing"));
}

TEST(MakeTokenizer, AllWrongFlagsAreReportedAtOnce) {
  const std::string error =
      error_of<ConfigError>([] { make_tokenizer({.type = "GPT2BPETokenizer", .model = "m", .null_pad = 0}); });
  EXPECT_THAT(error, HasSubstr("--vocab-file is missing"));
  EXPECT_THAT(error, HasSubstr("--merge-file is missing"));
  EXPECT_THAT(error, HasSubstr("--tokenizer-model has no meaning"));
  EXPECT_THAT(error, HasSubstr("--null-tokenizer-pad-id has no meaning"));
  EXPECT_THAT(error_of<ConfigError>([] { make_tokenizer({.type = "ByteLevelTokenizer", .vocab_size = 256}); }),
              HasSubstr("--vocab-size is 256, but the vocabulary of this ByteLevelTokenizer has 257"));
  EXPECT_EQ(make_tokenizer({.type = "ByteLevelTokenizer", .vocab_size = 257})->vocab_size(), 257);
}

// The embedding of a model may have entries that its tokenizer never gives.
TEST(MakeTokenizer, TakesAVocabularyOfMoreEntriesThanTheTokenizers) {
  EXPECT_EQ(make_tokenizer({.type = "ByteLevelTokenizer", .vocab_size = 300})->vocab_size(), 257);
}
}  // namespace
}  // namespace megatron
