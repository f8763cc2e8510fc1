// Fill in the middle against what Megatron-LM's GPTFIMDataset gave (tests/golden/data/fim).
#include "megatron/datasets/fill_in_the_middle.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "megatron/base/error.h"
#include "megatron/datasets/gpt_dataset.h"
#include "megatron/datasets/indexed_dataset.h"
#include "megatron/datasets/indexed_dataset_builder.h"
#include "megatron/tokenizers/utf8.h"
#include "tests/datasets/golden.h"
#include "tests/testing/scratch_directory.h"

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

/// Megatron's samples before the change, as documents of a dataset.
void write_documents(const json& samples, const std::string& prefix) {
  IndexedDatasetBuilder builder(prefix, {.token_type = TokenType::kInt32});
  for (const json& sample : samples) {
    builder.add_item(list<int64_t>(sample["sample"]));
    builder.end_document();
  }
  builder.finalize();
}

std::vector<int64_t> all_tokens(const GptSample& sample) {
  std::vector<int64_t> tokens = sample.tokens;
  tokens.push_back(sample.labels.back());
  return tokens;
}

TEST(FillInTheMiddle, SampleIOfAGptDatasetDrawsFromAStreamSeededWithSeedAndIWhateverIsReadBefore) {
  const json& expected = golden("fim/samples.json");
  const testing::ScratchDirectory scratch;
  write_documents(expected["cases"][0]["samples"], scratch.file("documents"));
  const IndexedDataset documents(scratch.file("documents"), {});
  const CodePointTokenizer tokenizer;
  const FillInTheMiddle fill(tokenizer, options_of(expected["cases"][3], expected["special"]));
  GptDatasetConfig config = {.sequence_length = 31, .random_seed = 4294967290, .tokenizer = facts_of(tokenizer)};
  const GptDatasetPart part{.sequences = {0, documents.num_sequences()}, .num_samples = 40};
  const GptDataset plain(documents, part, config, {});
  config.fill_in_the_middle = &fill;
  const GptDataset filled(documents, part, config, {});

  int num_changed = 0;
  GptSample sample;
  for (int64_t k = 0; k < plain.size(); ++k) {
    const int64_t i = (k * 7) % plain.size();
    plain.read(i, sample);
    std::vector<int64_t> tokens = all_tokens(sample);
    const std::vector<int64_t> before = tokens;
    NumpyRandomState random((config.random_seed + i) % (int64_t{1} << 32));
    fill.apply(tokens, random);
    num_changed += tokens != before;
    filled.read(i, sample);
    EXPECT_EQ(all_tokens(sample), tokens) << i;
    EXPECT_TRUE(std::equal(sample.labels.begin(), sample.labels.end() - 1, sample.tokens.begin() + 1)) << i;
  }
  EXPECT_GT(num_changed, plain.size() / 2);
}

TEST(FillInTheMiddle, ItsDatasetsHaveMegatronsClassAndTheIndicesOfGptDatasets) {
  const json& expected = golden("fim/samples.json");
  const testing::ScratchDirectory scratch;
  write_documents(expected["cases"][0]["samples"], scratch.file("documents"));
  const IndexedDataset documents(scratch.file("documents"), {});
  const CodePointTokenizer tokenizer;
  const FillInTheMiddle fill(tokenizer, options_of(expected["cases"][0], expected["special"]));
  GptDatasetConfig config = {.sequence_length = 31, .tokenizer = facts_of(tokenizer)};
  const GptDatasetPart part{.sequences = {0, documents.num_sequences()}, .num_samples = 40};
  const GptDataset plain(documents, part, config, {});
  config.fill_in_the_middle = &fill;
  const GptDataset filled(documents, part, config, {});
  EXPECT_EQ(filled.identity().class_name, "GPTFIMDataset");
  EXPECT_NE(filled.identity().description(), plain.identity().description());
  const std::string stem = cache_stem(filled.identity().description(), "GPTFIMDataset", Split::kTrain);
  EXPECT_TRUE(
      std::filesystem::exists(scratch.file("documents/cache/GPTFIMDataset_indices/") + stem + "-shuffle_index.npy"));
  for (const auto index : {&GptDataset::document_index, &GptDataset::sample_index, &GptDataset::shuffle_index})
    EXPECT_TRUE(std::ranges::equal((filled.*index)().bytes(), (plain.*index)().bytes()));
}

}  // namespace
}  // namespace megatron
