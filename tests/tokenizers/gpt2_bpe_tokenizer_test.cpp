#include "megatron/tokenizers/gpt2_bpe_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "megatron/base/error.h"
#include "tests/testing/scratch_directory.h"
#include "tests/testing/source_tree.h"

namespace megatron {
namespace {
using ::testing::HasSubstr;
const std::string kFolder = testing::golden_path("tokenizers/gpt2/");
const Gpt2BpeTokenizer::Options kFiles = {.vocab_file = kFolder + "vocab.json", .merge_file = kFolder + "merges.txt"};

std::string written(const std::string& name, const std::string& content) {
  static const megatron::testing::ScratchDirectory directory;  // tests run side by side, each in a process of its own
  const std::string path = directory.file(name);
  std::ofstream(path, std::ios::binary) << content;
  return path;
}
template <class E>
std::string error_of(const Gpt2BpeTokenizer::Options& options) {
  try {
    Gpt2BpeTokenizer tokenizer(options);
  } catch (const E& error) {
    return error.what();
  }
  return "no error";
}

TEST(Gpt2BpeTokenizer, KnowsItsSizeAndItsEndOfDocument) {
  const Gpt2BpeTokenizer tokenizer(kFiles);
  EXPECT_EQ(tokenizer.vocab_size(), 700);
  EXPECT_EQ(tokenizer.eod(), 0);
  EXPECT_EQ(tokenizer.pad(), std::nullopt);
  EXPECT_EQ(tokenizer.encode("a<|endoftext|>b"), (std::vector<TokenId>{65, 0, 66}));
  EXPECT_EQ(tokenizer.decode(std::vector<TokenId>{65, 0, 66}), "a<|endoftext|>b");
}

TEST(Gpt2BpeTokenizer, FurtherSpecialTokensFollowTheVocabularyAndTheLongestWins) {
  Gpt2BpeTokenizer::Options options = kFiles;
  options.special_tokens = {"<x>", "<x>>", "int"};
  const Gpt2BpeTokenizer tokenizer(options);
  EXPECT_EQ(tokenizer.vocab_size(), 702) << "'int' is in the vocabulary already";
  EXPECT_EQ(tokenizer.encode("<x>><x>"), (std::vector<TokenId>{701, 700}));
  EXPECT_EQ(tokenizer.encode("int"), std::vector<TokenId>{699});
  EXPECT_EQ(tokenizer.decode(std::vector<TokenId>{701, 699}), "<x>>int");
  options.special_tokens = {"<x>", "<x>"};
  EXPECT_THAT(error_of<ConfigError>(options), HasSubstr("'<x>' is given twice"));
}

TEST(Gpt2BpeTokenizer, TextThatIsNotUtf8IsRefused) {
  const Gpt2BpeTokenizer tokenizer(kFiles);
  EXPECT_THROW(tokenizer.encode("ok \xFF"), DataError);
}

TEST(Gpt2BpeTokenizer, UnknownIdsAreRefused) {
  const Gpt2BpeTokenizer tokenizer(kFiles);
  EXPECT_THROW(tokenizer.decode(std::vector<TokenId>{700}), DataError);
  EXPECT_THROW(tokenizer.decode(std::vector<TokenId>{-1}), DataError);
}

TEST(Gpt2BpeTokenizer, ThreadsMayShareIt) {
  const Gpt2BpeTokenizer tokenizer(kFiles);
  const std::string text = "and the they're in 12 iPhone  at \xE4\xBA\xBA, a";
  const std::vector<TokenId> expected = tokenizer.encode(text);
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (size_t t = 0; t < wrong.size(); ++t)
    threads.emplace_back([&, t] {
      const auto encoder = tokenizer.make_encoder();
      for (int i = 0; i < 200; ++i) {
        std::vector<TokenId> ids;
        encoder->append(text, ids);
        wrong[t] += ids != expected;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
}

// data.md 3.6: the fields and their order as Megatron 0.20 writes them for this type.
TEST(Gpt2BpeTokenizer, IdentityIsMegatrons) {
  Gpt2BpeTokenizer::Options options = kFiles;
  options.special_tokens = {"<a>", "<b>"};
  const TokenizerIdentity expected = {{"class", "megatron.core.tokenizers.text.text_tokenizer.MegatronTokenizerText"},
                                      {"tokenizer_path", "GPT2BPETokenizer"},
                                      {"additional_special_tokens", "['<a>', '<b>']"},
                                      {"vocab_file", options.vocab_file},
                                      {"merges_file", options.merge_file},
                                      {"use_fast", "True"},
                                      {"trust_remote_code", "False"},
                                      {"include_special_tokens", "True"},
                                      {"use_gigatoken", "False"}};
  EXPECT_EQ(Gpt2BpeTokenizer(options).identity(), expected);
  EXPECT_EQ(Gpt2BpeTokenizer(kFiles).identity()[2].second, "[]");
}

TEST(Gpt2BpeTokenizer, SwappedFilesAreNamedByTheirFlags) {
  const std::string swapped = error_of<DataError>({.vocab_file = kFiles.merge_file, .merge_file = kFiles.vocab_file});
  EXPECT_THAT(swapped, HasSubstr("--vocab-file " + kFiles.merge_file + " is not a JSON object of token ids"));
  EXPECT_THAT(swapped, HasSubstr("--vocab-file and --merge-file seem to be swapped"));
  const std::string twice = error_of<DataError>({.vocab_file = kFiles.vocab_file, .merge_file = kFiles.vocab_file});
  EXPECT_THAT(twice, HasSubstr("--merge-file " + kFiles.vocab_file + " is a JSON object, not merge rules"));
}

TEST(Gpt2BpeTokenizer, DamagedFilesAreNamedWithThePlace) {
  const auto with_vocab = [](const std::string& content) {
    return error_of<DataError>({.vocab_file = written("vocab.json", content), .merge_file = kFiles.merge_file});
  };
  EXPECT_THAT(with_vocab("{\"a\": 0"), HasSubstr("vocab.json is not a JSON object"));
  EXPECT_THAT(with_vocab("[1]"), HasSubstr("vocab.json is not a JSON object"));
  EXPECT_THAT(with_vocab("{\"a\": \"b\"}"), HasSubstr("the id of 'a' is not an integer"));
  EXPECT_THAT(with_vocab("{\"a\": -1}"), HasSubstr("the id of 'a' is -1"));
  EXPECT_THAT(with_vocab("{\"a\": 0, \"a\": 1}"), HasSubstr("has the token 'a' twice"));
  EXPECT_THAT(with_vocab("{\"a\": 0, \"b\": 2}"), HasSubstr("has 2 tokens, but 'b' has the id 2"));
  EXPECT_THAT(with_vocab("{\"a\": 0, \"b\": 0}"), HasSubstr("both have the id 0"));
  EXPECT_THAT(with_vocab("{\"a\": 0, \"b\": 1}"), HasSubstr("merges.txt line 2: the rule"));

  const auto with_merges = [](const std::string& content) {
    return error_of<DataError>({.vocab_file = kFiles.vocab_file, .merge_file = written("merges.txt", content)});
  };
  EXPECT_THAT(with_merges("#version: 0.2\ni n\ni n t\n"), HasSubstr("merges.txt line 3: 'i n t' is not a merge rule"));
  EXPECT_THAT(with_merges("i n\n\n"), HasSubstr("line 2: '' is not a merge rule"));
  EXPECT_THAT(with_merges("i n\ni n\n"), HasSubstr("line 2: the rule 'i n' is there twice"));
  EXPECT_THAT(with_merges("z z\n"), HasSubstr("the rule 'z z' needs the token 'zz'"));
  EXPECT_EQ(with_merges("#version: 0.2\r\ni n\r\nin t"), "no error");

  EXPECT_THAT(error_of<DataError>({.vocab_file = "/nowhere.json", .merge_file = kFiles.merge_file}),
              HasSubstr("/nowhere.json"));
  Gpt2BpeTokenizer::Options options = kFiles;
  options.eod = "</s>";
  EXPECT_THAT(error_of<DataError>(options), HasSubstr("has no token </s>, which ends a document"));
  EXPECT_THAT(error_of<DataError>({.vocab_file = written("vocab.json", "{\"<|endoftext|>\": 0}"),
                                   .merge_file = written("merges.txt", "")}),
              HasSubstr("for the byte 0x00: it is not byte-level"));
}
}  // namespace
}  // namespace megatron
