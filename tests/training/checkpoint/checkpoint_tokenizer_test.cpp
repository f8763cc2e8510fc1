#include "megatron/training/checkpoint/checkpoint_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "megatron/base/error.h"
#include "megatron/tokenizers/byte_level_tokenizer.h"
#include "megatron/tokenizers/char_tokenizer.h"
#include "megatron/tokenizers/gpt2_bpe_tokenizer.h"
#include "megatron/tokenizers/sentence_piece_tokenizer.h"
#include "megatron/training/training_data.h"
#include "tests/testing/scratch_directory.h"
#include "tests/testing/source_tree.h"

namespace megatron {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

const std::string kGpt2 = testing::golden_path("tokenizers/gpt2/");

CharTokenizer characters(const std::string& text) {
  std::vector<std::string> list;
  for (const char c : text) list.emplace_back(1, c);
  return CharTokenizer(list);
}

class CheckpointTokenizer : public ::testing::Test {
 protected:
  std::string difference(const TokenizerRecord& own, const std::string& arguments = "{}", int64_t rows = 128) const {
    PretrainConfig config;
    config.transformer.padded_vocab_size = rows;
    return other_tokenizer(files_, scratch_.path(), arguments, own, config).value_or("");
  }
  void save(const TokenizerRecord& record, bool with_files = true) {
    save_tokenizer(files_, scratch_.path(), record, with_files);
  }

  testing::ScratchDirectory scratch_;
  PosixFileSystem files_;
};

TEST_F(CheckpointTokenizer, IsToldFromThoseOfAnotherTypeSizeOrVocabulary) {
  const TokenizerRecord stored = tokenizer_record("CharTokenizer", characters("abcd"));
  save(stored);
  EXPECT_EQ(difference(stored), "");
  EXPECT_EQ(difference(tokenizer_record("CharTokenizer", characters("abcde"))),
            "was trained with another tokenizer: CharTokenizer of 4 tokens there, CharTokenizer of 5 tokens here");
  EXPECT_EQ(
      difference(tokenizer_record("ByteLevelTokenizer", ByteLevelTokenizer())),
      "was trained with another tokenizer: CharTokenizer of 4 tokens there, ByteLevelTokenizer of 257 tokens here");
  const TokenizerRecord other = tokenizer_record("CharTokenizer", characters("abdc"));
  EXPECT_EQ(difference(other), "was trained with another vocabulary of CharTokenizer of 4 tokens: its SHA-256 is " +
                                   stored.vocabulary_sha256 + " there, " + other.vocabulary_sha256 + " here");
}

TEST_F(CheckpointTokenizer, IsTheSameWhateverFormItsFilesHad) {
  const auto written = [&](const std::string& name, const std::string& content) {
    std::ofstream(scratch_.file(name), std::ios::binary) << content;
    return scratch_.file(name);
  };
  save(tokenizer_record("CharTokenizer", CharTokenizer::from_file(written("v.txt", "a\"b"))));
  EXPECT_EQ(
      difference(tokenizer_record("CharTokenizer", CharTokenizer::from_file(written("v.json", R"(["a","\"","b"])")))),
      "");
  const Gpt2BpeTokenizer original({.vocab_file = kGpt2 + "vocab.json", .merge_file = kGpt2 + "merges.txt"});
  save(tokenizer_record("GPT2BPETokenizer", original));
  std::string merges = read_file(files_, kGpt2 + "merges.txt");
  const size_t first_rule = merges.starts_with("#version") ? merges.find('\n') + 1 : 0;
  const Gpt2BpeTokenizer copy({.vocab_file = written("vocab.json", original.files()[0].content),
                               .merge_file = written("merges.txt", merges.substr(first_rule))});
  EXPECT_EQ(difference(tokenizer_record("GPT2BPETokenizer", copy)), "");
  const size_t second_rule = merges.find('\n', first_rule) + 1;
  const Gpt2BpeTokenizer fewer_rules(
      {.vocab_file = kGpt2 + "vocab.json", .merge_file = written("fewer.txt", merges.substr(second_rule))});
  EXPECT_THAT(difference(tokenizer_record("GPT2BPETokenizer", fewer_rules)), HasSubstr("another vocabulary"));
}

/// Megatron stores --vocab-size as given, which for most types it is not.
TEST_F(CheckpointTokenizer, IsComparedByTypeAndSizeInCheckpointsOfMegatron) {
  const std::string null = R"({"tokenizer_type": "NullTokenizer", "vocab_size": 101, "padded_vocab_size": 104})";
  EXPECT_EQ(difference({.type = "NullTokenizer", .vocab_size = 101}, null), "");
  EXPECT_EQ(difference({.type = "NullTokenizer", .vocab_size = 102}, null), "") << "as Megatron Core 0.16 counts";
  EXPECT_THAT(difference({.type = "NullTokenizer", .vocab_size = 256}, null), HasSubstr("101 tokens there"));
  EXPECT_THAT(difference({.type = "CharTokenizer", .vocab_size = 101}, null), HasSubstr("NullTokenizer of 101"));
  const std::string gpt2 =
      R"({"tokenizer_type": "GPT2BPETokenizer", "vocab_size": null, "padded_vocab_size": 50432,
          "make_vocab_size_divisible_by": 128, "tensor_model_parallel_size": 2})";
  EXPECT_EQ(difference({.type = "GPT2BPETokenizer", .vocab_size = 50257}, gpt2, 50304), "") << "padded for two ranks";
  EXPECT_EQ(difference({.type = "GPT2BPETokenizer", .vocab_size = 50100}, gpt2, 50432), "") << "padded as here";
  EXPECT_THAT(difference({.type = "GPT2BPETokenizer", .vocab_size = 700}, gpt2, 768),
              AllOf(HasSubstr("50432 rows of embeddings there"), HasSubstr("700 tokens with 768 rows here")));
  EXPECT_THAT(difference({.type = "CharTokenizer", .vocab_size = 50257}, gpt2, 50304), HasSubstr("GPT2BPETokenizer"));
  EXPECT_EQ(difference({.type = "CharTokenizer", .vocab_size = 5}, "{}"), "") << "nothing is stored";
}

TEST_F(CheckpointTokenizer, IsMadeAgainFromTheFilesInTheCheckpoint) {
  const std::string text = "Hello, \"worlds\" \\ of\ttokens \xC3\xA9<|endoftext|>";
  TokenizerConfig config{
      .tokenizer_type = "GPT2BPETokenizer", .vocab_file = kGpt2 + "vocab.json", .merge_file = kGpt2 + "merges.txt"};
  const auto trained = tokenizer_of(config);
  save(tokenizer_record(config.tokenizer_type, *trained));
  config.vocab_file = config.merge_file = "gone";
  take_stored_files(files_, scratch_.path(), config);
  const auto again = tokenizer_of(config);
  EXPECT_EQ(again->encode(text), trained->encode(text));
  EXPECT_EQ(again->vocab_size(), trained->vocab_size());
  EXPECT_EQ(difference(tokenizer_record(config.tokenizer_type, *again)), "");
}

TEST_F(CheckpointTokenizer, IsRestoredFromTheCheckpointForEachTypeWithAModelFile) {
  const std::string hugging_face = scratch_.file("model");
  std::filesystem::create_directory(hugging_face);
  std::filesystem::copy_file(testing::golden_path("tokenizers/hf/llama3.json"), hugging_face + "/tokenizer.json");
  std::ofstream(hugging_face + "/tokenizer_config.json") << R"({"eos_token": "<|end_of_text|>"})";
  const std::string vocab = scratch_.file("vocab.txt");
  std::ofstream(vocab) << "[UNK]\n[CLS]\n[SEP]\nhello\n";
  std::vector<TokenizerConfig> configs = {
      {.tokenizer_type = "HuggingFaceTokenizer", .tokenizer_model = hugging_face},
      {.tokenizer_type = "BertWordPieceCase", .vocab_file = vocab},
      {.tokenizer_type = "TikTokenizer",
       .tokenizer_model = testing::golden_path("tokenizers/tiktoken/megatron.json"),
       .vocab_size = 1700},
      {.tokenizer_type = "TikTokenizer",
       .tokenizer_model = testing::golden_path("tokenizers/tiktoken/o200k.tiktoken"),
       .tokenizer_special_tokens = {{"<|endoftext|>"}},
       .tiktoken_pattern = "o200k"}};
  if (has_sentence_piece())
    configs.push_back({.tokenizer_type = "Llama2Tokenizer",
                       .tokenizer_model = testing::golden_path("tokenizers/sentencepiece/bpe.model")});
  for (TokenizerConfig& config : configs) {
    SCOPED_TRACE(config.tokenizer_type);
    std::filesystem::remove_all(scratch_.file("tokenizer"));
    const auto trained = tokenizer_of(config);
    save(tokenizer_record(config.tokenizer_type, *trained));
    (config.vocab_file ? config.vocab_file : config.tokenizer_model) = "gone";
    take_stored_files(files_, scratch_.path(), config);
    const auto again = tokenizer_of(config);
    EXPECT_EQ(again->encode("hello  world"), trained->encode("hello  world"));
    EXPECT_EQ(again->eod(), trained->eod());
    EXPECT_EQ(difference(tokenizer_record(config.tokenizer_type, *again)), "");
  }
}

TEST_F(CheckpointTokenizer, LeavesItsFilesOutOnRequest) {
  save(tokenizer_record("CharTokenizer", characters("abc")), false);
  EXPECT_FALSE(std::filesystem::exists(scratch_.file("tokenizer")));
  EXPECT_THAT(difference(tokenizer_record("CharTokenizer", characters("xyz"))), HasSubstr("another vocabulary"));
  TokenizerConfig config{.tokenizer_type = "CharTokenizer", .vocab_file = "elsewhere"};
  take_stored_files(files_, scratch_.path(), config);
  EXPECT_EQ(config.vocab_file, "elsewhere");
}

TEST_F(CheckpointTokenizer, ThatIsDamagedIsRefused) {
  for (const char* content : {"", "{", "[]", R"({"tokenizer_type": "CharTokenizer", "vocab_size": "4"})"}) {
    std::ofstream(scratch_.file("tokenizer_identity.json")) << content;
    EXPECT_THAT([&] { difference({.type = "CharTokenizer", .vocab_size = 4}); },
                ThrowsMessage<CheckpointError>(HasSubstr("tokenizer_identity.json is damaged")))
        << content;
  }
}

}  // namespace
}  // namespace megatron
