#include "megatron/tokenizers/hugging_face_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "megatron/base/error.h"
#include "megatron/tokenizers/hugging_face/serde_number.h"
#include "megatron/tokenizers/oniguruma_syntax.h"
#include "megatron/tokenizers/regex_splitter.h"
#include "tests/testing/scratch_directory.h"
#include "tests/testing/source_tree.h"

namespace megatron {
namespace {
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kWords =
    R"("model": {"type": "WordLevel", "vocab": {"a": 0, "b": 1, "[U]": 2}, "unk_token": "[U]"})";
constexpr const char* kSplit = R"("pre_tokenizer": {"type": "WhitespaceSplit"})";
constexpr const char* kAdded =
    R"("added_tokens": [{"id": 3, "content": "<s>", "single_word": false, "lstrip": false, "rstrip": false,
        "normalized": false, "special": true}])";

class HuggingFace : public ::testing::Test {
 protected:
  void write(const std::string& name, const std::string& content) {
    std::ofstream(directory_.file(name), std::ios::binary) << content;
  }
  void write_json(const std::vector<std::string>& fields) {
    std::string json = "{\"version\": \"1.0\"";
    for (const std::string& field : fields) json += ", " + field;
    write("tokenizer.json", json + "}");
  }
  HuggingFaceTokenizer tokenizer(bool special = true, std::vector<std::string> added = {}) const {
    return HuggingFaceTokenizer(
        {.path = directory_.path(), .include_special_tokens = special, .special_tokens = std::move(added)});
  }
  template <class E>
  std::string error() const {
    try {
      tokenizer();
    } catch (const E& error) {
      return error.what();
    }
    return "no error";
  }

  testing::ScratchDirectory directory_;
};

TEST_F(HuggingFace, AFolderNamesTheTokensThatEndDocumentsAndPad) {
  write_json({kWords, kSplit, kAdded});
  EXPECT_EQ(tokenizer().eod(), std::nullopt);
  write("special_tokens_map.json", R"({"eos_token": {"content": "<s>"}, "pad_token": "a"})");
  EXPECT_EQ(tokenizer().eod(), 3);
  EXPECT_EQ(tokenizer().pad(), 0);
  write("tokenizer_config.json", R"({"eos_token": "b", "pad_token": null})");
  EXPECT_EQ(tokenizer().eod(), 1) << "tokenizer_config.json comes first";
  EXPECT_EQ(tokenizer().pad(), 0);
  EXPECT_EQ(tokenizer().vocab_size(), 4);
  EXPECT_EQ(HuggingFaceTokenizer({.path = directory_.file("tokenizer.json")}).eod(), 1) << "the file as the folder";
  std::vector<std::string> names;
  for (const TokenizerFile& file : tokenizer().files()) names.push_back(file.name);
  EXPECT_THAT(names, ElementsAre("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"));
}

TEST_F(HuggingFace, SpecialTokensAroundATextCanBeLeftOut) {
  write_json({kWords, kSplit, kAdded,
              R"("post_processor": {"type": "TemplateProcessing", "pair": [], "special_tokens":
                   {"<s>": {"id": "<s>", "ids": [3], "tokens": ["<s>"]}}, "single":
                   [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]})"});
  EXPECT_THAT(tokenizer().encode("a x <s>b"), ElementsAre(3, 0, 2, 3, 1));
  EXPECT_THAT(tokenizer(false).encode("a"), ElementsAre(0));
  EXPECT_THAT(tokenizer().encode(""), ElementsAre(3));
}

TEST_F(HuggingFace, FurtherSpecialTokensFollowTheVocabulary) {
  write_json({kWords, kSplit, kAdded});
  const HuggingFaceTokenizer more = tokenizer(true, {"<x>", "b", "<s>"});
  EXPECT_EQ(more.vocab_size(), 5);
  EXPECT_THAT(more.encode("a<x>ab"), ElementsAre(0, 4, 0, 1)) << "'b' ends a word now";
  EXPECT_EQ(more.decode(std::vector<TokenId>{0, 4}), "a <x>");
}

TEST_F(HuggingFace, UnknownPartsOfTheFileAreRefusedByName) {
  const auto refused = [&](const std::vector<std::string>& fields) {
    write_json(fields);
    return error<NotSupported>();
  };
  EXPECT_THAT(refused({kWords, R"("colour": "red")"}), HasSubstr("unknown field colour"));
  EXPECT_THAT(refused({kWords, R"("normalizer": {"type": "Rot13"})"}), HasSubstr("normalizer type 'Rot13'"));
  EXPECT_THAT(refused({kWords, R"("normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC", "x": 1}]})"}),
              HasSubstr("normalizer[0] has the unknown field x"));
  EXPECT_THAT(refused({kWords, R"("pre_tokenizer": {"type": "Guess"})"}), HasSubstr("pre-tokenizer type 'Guess'"));
  EXPECT_THAT(refused({kWords, R"("decoder": {"type": "Guess"})"}), HasSubstr("decoder type 'Guess'"));
  EXPECT_THAT(refused({kWords, R"("post_processor": {"type": "Guess"})"}), HasSubstr("post-processor type 'Guess'"));
  EXPECT_THAT(refused({R"("model": {"type": "Oracle"})"}), HasSubstr("model type 'Oracle'"));
  EXPECT_THAT(refused({kWords, R"("pre_tokenizer": {"type": "Split", "pattern": {"Regex": "[a[bc]]"},
                                    "behavior": "Isolated", "invert": false})"}),
              HasSubstr("a character class inside of a character class"));
}

TEST_F(HuggingFace, DamagedFilesAreRefusedWithThePlace) {
  const auto damaged = [&](const std::vector<std::string>& fields) {
    write_json(fields);
    return error<DataError>();
  };
  EXPECT_THAT(error<DataError>(), HasSubstr("there is no "));
  EXPECT_THAT(damaged({R"("model": 3)"}), HasSubstr("model is not a JSON object"));
  EXPECT_THAT(damaged({R"("model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["a b"]})"}),
              HasSubstr("needs the token 'b'"));
  EXPECT_THAT(damaged({R"("model": {"type": "BPE", "vocab": {"a": 0, "b": 0}, "merges": []})"}),
              HasSubstr("both have the id 0"));
  EXPECT_THAT(damaged({kWords, R"("pre_tokenizer": {"type": "Digits"})"}), HasSubstr("'individual_digits'"));
  EXPECT_THAT(damaged({kWords, R"("normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"})"}),
              HasSubstr("precompiled_charsmap is damaged"));
  write("tokenizer.json", "{");
  EXPECT_THAT(error<DataError>(), HasSubstr("is not JSON"));
}

TEST_F(HuggingFace, AConfigHasIntegersOfAnyLength) {
  write_json({kWords, kSplit, kAdded});
  write("tokenizer_config.json",
        R"({"model_max_length": 1000000000000000019884624838656, "eos_token": "b", "0123456789012345678901": "\\"})");
  EXPECT_EQ(tokenizer().eod(), 1);
}

TEST_F(HuggingFace, FilesThatContradictEachOtherAreRefused) {
  write_json({kWords, kSplit, kAdded});
  write("tokenizer_config.json", R"({"eos_token": "</s>"})");
  EXPECT_THAT(error<DataError>(), HasSubstr("'</s>', which tokenizer.json has not"));
  write("tokenizer_config.json", R"({"add_bos_token": true})");
  EXPECT_THAT(error<DataError>(), HasSubstr("add_bos_token is true, but the post_processor"));
  write("tokenizer_config.json", R"({"added_tokens_decoder": {"7": {"content": "<s>"}}})");
  EXPECT_THAT(error<DataError>(), HasSubstr("gives the id 7 to '<s>'"));
}

TEST_F(HuggingFace, TextThatIsNotUtf8AndUnknownIdsAreRefused) {
  write_json({kWords, kSplit});
  EXPECT_THROW(tokenizer().encode("ok \xFF"), DataError);
  EXPECT_THROW(tokenizer().encode("\xED\xA0\x80"), DataError);
  EXPECT_THROW(tokenizer().decode(std::vector<TokenId>{3}), DataError);
}

std::vector<std::string> matches(std::string_view pattern, std::string_view text) {
  const RegexPattern compiled(perl_from_oniguruma(pattern));
  std::vector<std::string> found;
  RegexSplitter(compiled).for_each_match(
      text, [&](RegexSplitter::Range match) { found.emplace_back(text.substr(match.begin, match.end - match.begin)); });
  return found;
}

// Expected: Oniguruma 6.9 with Ruby's syntax.
TEST_F(HuggingFace, UnigramScoresAreRoundedAsInTheReference) {
  // Read exactly, the score of "ab" is the sum of the other two, and the longer piece wins.
  write_json({R"("model": {"type": "Unigram", "unk_id": 0, "byte_fallback": false, "vocab": [["<unk>", 0.0],
      ["ab", -5.267864520827795], ["a", -2.0178645208277954], ["b", -3.25]]})"});
  EXPECT_THAT(tokenizer().encode("ab"), ElementsAre(2, 3)) << "tokenizers 0.23.3";
}

TEST(SerdeNumber, IsTheDigitsDividedByAPowerOfTen) {
  using hugging_face::serde_number;
  EXPECT_EQ(serde_number(-2.0178645208277954), -2.017864520827795);
  for (const double exact : {0.0, -0.0, 1.0, -12.5, 1e22, 3e-5, -8.123456789}) EXPECT_EQ(serde_number(exact), exact);
  EXPECT_DOUBLE_EQ(serde_number(1.25e-310), 1.25e-310);
}

TEST(OnigurumaSyntax, MeansTheSameInPerlsSyntax) {
  EXPECT_THAT(matches(R"(\p{N}{1,3}+)", "1234567a12"), ElementsAre("1234567", "12")) << "a repeated group";
  EXPECT_THAT(matches(R"(a{,2})", "aaa"), ElementsAre("aa", "a"));
  EXPECT_THAT(matches("^b$", "a\nb\nc"), ElementsAre("b")) << "of each line";
  EXPECT_THAT(matches(R"(\w+)", "a\u0301\u24B6 x"), ElementsAre("a\u0301\u24B6", "x")) << "Alphabetic and marks";
  EXPECT_THAT(matches(R"([\w-]+)", "a-b c"), ElementsAre("a-b", "c"));
  EXPECT_THAT(matches(R"(\bx)", "x ax"), ElementsAre("x"));
  EXPECT_THAT(matches(R"(\p{Han}+)", "\u4E00\u3001\u4E00"), ElementsAre("\u4E00", "\u4E00")) << "not by extensions";
  EXPECT_THAT(matches("(?m:a.b)", "a\nb"), ElementsAre("a\nb")) << "Ruby's m lets the dot match newlines";
  EXPECT_THAT(matches(R"([\u3040-\u309F])", "\u3042a"), ElementsAre("\u3042"));
  EXPECT_THAT(matches("x*", "axxb"), ElementsAre("", "xx", ""));
  EXPECT_THAT(matches(quoted_pattern("a.b*"), "a.b* axbb"), ElementsAre("a.b*"));
  EXPECT_THAT(matches(quoted_pattern("\n é"), "\n é"), ElementsAre("\n é"));
}

TEST(OnigurumaSyntax, RefusesWhatHasNoEqual) {
  for (const char* pattern : {R"([a&&b])", R"(\X)", R"(\g<a>)", R"(a{2}?)", R"((?y:a))", R"([[:punct:]])", R"(\u12)"})
    EXPECT_THROW(perl_from_oniguruma(pattern), NotSupported) << pattern;
}

}  // namespace
}  // namespace megatron
