// Fill in the middle against what Megatron-LM's GPTFIMDataset gave (tests/golden/data/fim).
#include "megatron/datasets/fill_in_the_middle.h"

#include <gtest/gtest.h>

#include "megatron/base/error.h"
#include "megatron/tokenizers/utf8.h"
#include "tests/datasets/golden.h"

namespace megatron {
namespace {

using nlohmann::json;
using testing::golden;
using testing::list;

/// A token for each character, its code point.
class CodePointTokenizer final : public Tokenizer {
 public:
  std::unique_ptr<TextEncoder> make_encoder() const override { return std::make_unique<Encoder>(); }
  std::string decode(std::span<const TokenId> ids) const override {
    std::string text;
    for (const TokenId id : ids) append_utf8(static_cast<char32_t>(id), text);
    return text;
  }
  int64_t vocab_size() const override { return 0x110000 + 16; }
  std::optional<TokenId> eod() const override { return std::nullopt; }
  TokenizerIdentity identity() const override { return {}; }

 private:
  class Encoder final : public TextEncoder {
   public:
    void append(std::string_view text, std::vector<TokenId>& ids) override {
      for (size_t i = 0; i < text.size(); i += utf8_length(text[i]))
        ids.push_back(static_cast<TokenId>(code_point_at(text, i)));
    }
  };
};

FillInTheMiddle::Options options_of(const json& one, const json& special) {
  FillInTheMiddle::Options options{.rate = one["rate"],
                                   .spm_rate = one["spm_rate"],
                                   .prefix = special["prefix"],
                                   .middle = special["middle"],
                                   .suffix = special["suffix"],
                                   .pad = special["pad"],
                                   .eod = special["eod"],
                                   .special_tokens = {}};
  if (one["split"]) options.split_sample = special["split"].get<TokenId>();
  if (!one["fragment_rate"].is_null()) options.fragment_rate = one["fragment_rate"];
  if (!one["no_prefix"].is_null()) options.no_prefix = one["no_prefix"].get<std::string>();
  for (const json& id : special) options.special_tokens.push_back(id);
  return options;
}

TEST(FillInTheMiddle, MakesMegatronsSamplesOfTheSameRandomStream) {
  const json& expected = golden("fim/samples.json");
  const CodePointTokenizer tokenizer;
  for (const json& one : expected["cases"]) {
    const FillInTheMiddle fill(tokenizer, options_of(one, expected["special"]));
    NumpyRandomState random(one["seed"]);
    for (const json& sample : one["samples"]) {
      auto tokens = list<int64_t>(sample["sample"]);
      fill.apply(tokens, random);
      EXPECT_EQ(tokens, list<int64_t>(sample["result"])) << one["seed"] << ": " << sample["sample"];
    }
  }
}

TEST(FillInTheMiddle, RejectsRatesAndTokensThatCannotBe) {
  const json& expected = golden("fim/samples.json");
  const CodePointTokenizer tokenizer;
  const FillInTheMiddle::Options good = options_of(expected["cases"][0], expected["special"]);
  for (const double rate : {0.0, -0.1, 1.5}) {
    FillInTheMiddle::Options bad = good;
    bad.spm_rate = rate;
    EXPECT_THROW(FillInTheMiddle(tokenizer, bad), ConfigError) << rate;
  }
  FillInTheMiddle::Options bad = good;
  bad.middle = 0x110000 + 16;
  EXPECT_THROW(FillInTheMiddle(tokenizer, bad), ConfigError);
}

}  // namespace
}  // namespace megatron
