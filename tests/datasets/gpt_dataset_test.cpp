// GPT data sets against the samples and indices that Megatron gave (tests/golden/data/gpt and mock).
#include "megatron/datasets/gpt_dataset.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "megatron/base/error.h"
#include "megatron/datasets/mock_token_source.h"
#include "tests/datasets/golden.h"
#include "tests/datasets/gpt_case.h"
#include "tests/testing/scratch_directory.h"

namespace megatron {
namespace {

using nlohmann::json;
using testing::golden;
using testing::is_error;
using testing::kGoldenData;
using testing::list;

class GptDatasetGolden : public ::testing::Test {
 protected:
  /// Reads a case's config; its indices are cached in a directory of the test.
  GptDatasetConfig config_of(const json& expected) const {
    GptDatasetConfig config = testing::read_config(expected["config"], testing::vocab_size_of(expected));
    config.path_to_cache = scratch_.path();
    return config;
  }

  const testing::ScratchDirectory scratch_;
  const testing::WorkingDirectory directory_{kGoldenData};
};

TEST_F(GptDatasetGolden, EveryCaseHasMegatronsIndicesAndSamples) {
  int num_cases = 0;
  const json& cases = golden("gpt/cases.json");
  for (const auto& [name, expected] : cases.items()) {
    if (is_error(expected)) continue;
    SCOPED_TRACE(name);
    for (FileAccess access : {FileAccess::kMap, FileAccess::kPread}) {
      GptDatasetConfig config = config_of(expected);
      config.bin_access = access;
      testing::expect_equal_case(expected, config);
    }
    ++num_cases;
  }
  EXPECT_GT(num_cases, 0);
}

TEST_F(GptDatasetGolden, DocumentsAreCutWhereMegatronsCuSeqlensAre) {
  const json& cases = golden("gpt/inter_document.json");
  for (const auto& [name, expected] : cases.items()) {
    SCOPED_TRACE(name);
    testing::expect_equal_case(expected, config_of(expected));
  }
}

TEST_F(GptDatasetGolden, PaddingTokensActAsInMegatron) {
  const json& cases = golden("gpt/pad.json");
  for (const auto& [name, expected] : cases.items()) {
    if (name == "kept_loss_mask") continue;
    SCOPED_TRACE(name);
    GptDatasetConfig config = config_of(expected);
    TokenizerFacts& tokenizer = config.tokenizer;
    tokenizer.special_tokens = {tokenizer.eod};
    tokenizer.identity = {{"vocab_size", std::to_string(tokenizer.vocab_size)}, {"eod", std::to_string(tokenizer.eod)}};
    if (expected["pad"].is_number()) tokenizer.pad = expected["pad"].get<int64_t>();
    if (expected["pad"] != "absent") {
      tokenizer.identity.emplace_back("pad", expected["pad"].is_null() ? "None" : std::to_string(*tokenizer.pad));
    }
    if (name.starts_with("pad_is_eos")) {
      tokenizer.special_tokens = {9, tokenizer.eod};
      tokenizer.identity.emplace_back("eos", "9");
    }
    // Tokenizers that list their special tokens are asked for that list only.
    if (name.starts_with("pad_is_other") || name.starts_with("pad_is_eod_not_listed")) tokenizer.special_tokens = {9};
    testing::expect_equal_case(expected, config);
  }
}

TEST_F(GptDatasetGolden, ALossMaskHoldsNoMarksOfTheSampleBefore) {
  const json& expected = golden("gpt/pad.json")["kept_loss_mask"];
  GptDatasetConfig config;
  config.sequence_length = 14;
  config.random_seed = 21;
  const int64_t vocab_size = testing::vocab_size_of(golden("gpt/pad.json")["pad_absent"]);
  config.tokenizer = {.vocab_size = vocab_size, .eod = vocab_size - 1, .pad = expected["pad"].get<int64_t>()};
  config.path_to_cache = scratch_.path();
  const GptDatasets datasets =
      build_gpt_datasets(config, {.blend = Blend{{"indexed/gpt_a"}, std::nullopt}, .split = "1,0,0"},
                         {40, std::nullopt, std::nullopt}, {});
  GptSample sample;
  for (size_t i = 0; i < expected["order"].size(); ++i) {
    datasets.train->read(expected["order"][i].get<int64_t>(), sample);
    EXPECT_EQ(sample.loss_mask, list<float>(expected["each_alone"][i]));
    EXPECT_EQ(sample.tokens, list<int64_t>(expected["samples"][i]["tokens"]));
  }
}

TEST_F(GptDatasetGolden, ASplitWithoutTokensIsAnErrorThatNamesIt) {
  GptDatasetConfig config;
  config.sequence_length = 8;
  config.random_seed = 1;
  config.tokenizer = testing::null_tokenizer(testing::vocab_size_of(golden("gpt/pad.json")["pad_absent"]));
  config.path_to_cache = scratch_.path();
  const GptDataSources sources = {.blend = Blend{{"indexed/gpt_a"}, std::nullopt}, .split = "969, 30, 1"};
  try {
    build_gpt_datasets(config, sources, {9, 2, 1}, {});
    FAIL() << "Megatron never returns here";
  } catch (const DataError& error) {
    const auto num_sequences = golden("indexed/gpt.json")["gpt_a"]["sequence_count"].get<int64_t>();
    EXPECT_EQ(error.what(),
              fmt::format("indexed/gpt_a: the test split has 0 of {} sequences and no tokens, but 1 samples of it are "
                          "needed. Give the split a larger share with --split, add data, or request no samples "
                          "(--eval-iters 0).",
                          num_sequences));
  }
  EXPECT_EQ(build_gpt_datasets(config, sources, {9, 2, 0}, {}).test->size(), 0);
}

TEST_F(GptDatasetGolden, MockDataIsMegatrons) {
  const json& mock = golden("mock/mock.json");
  TokenizerFacts tokenizer = testing::null_tokenizer(mock["vocab_size"].get<int64_t>());
  const MockTokenSource source(tokenizer);
  std::vector<int32_t> lengths;
  for (int64_t i = 0; i < source.num_sequences(); ++i) lengths.push_back(source.sequence_length(i));
  EXPECT_EQ(md5_hex(std::as_bytes(std::span(lengths))), mock["lengths"]["md5"].get<std::string>());
  for (const auto& [sequence, tokens] : mock["sequences"].items()) {
    std::vector<int64_t> read(tokens.size());
    source.read(std::stoll(sequence), 0, read);
    EXPECT_EQ(read, list<int64_t>(tokens));
  }
  int num_cases = 0;
  for (const auto& [name, expected] : mock.items()) {
    if (!name.starts_with("mock_")) continue;
    SCOPED_TRACE(name);
    ++num_cases;
    GptDatasetConfig config;
    config.sequence_length = expected["sequence_length"].get<int64_t>();
    config.random_seed = expected["random_seed"].get<int64_t>();
    config.tokenizer = tokenizer;
    testing::expect_equal_case(expected, config);
  }
  EXPECT_GT(num_cases, 0);
}

/// Sequences given in the test.
class Listed final : public TokenSource {
 public:
  explicit Listed(std::vector<std::vector<int64_t>> sequences) : sequences_(std::move(sequences)) {}
  const std::string& name() const override { return name_; }
  int64_t num_sequences() const override { return static_cast<int64_t>(sequences_.size()); }
  int32_t sequence_length(int64_t i) const override {
    return static_cast<int32_t>(sequences_[static_cast<size_t>(i)].size());
  }
  void read(int64_t i, int64_t offset, std::span<int64_t> out) const override {
    std::copy_n(sequences_[static_cast<size_t>(i)].begin() + offset, out.size(), out.begin());
  }

 private:
  std::string name_ = "listed";
  std::vector<std::vector<int64_t>> sequences_;
};

TEST(GptDataset, PadsAShortSampleInFrontOfAnEmptyDocument) {
  // The sample ends in the empty document at offset -1, where Megatron stops with an assertion.
  const Listed source({{1, 2, 3, 4, 5}, {}});
  GptDatasetConfig config = {.sequence_length = 3, .drop_last_partial_validation_sequence = false};
  int num_ends_before_zero = 0;
  for (int64_t seed = 0; seed < 8; ++seed) {
    config.random_seed = seed;
    const GptDataset dataset(source, {.split = Split::kValid, .sequences = {0, 2}, .mock = true}, config, {});
    ASSERT_EQ(dataset.size(), 2);
    num_ends_before_zero += dataset.sample_index()[5] < 0 ? 1 : 0;
    GptSample sample;
    dataset.read(dataset.shuffle_index()[0] == 1 ? 0 : 1, sample);
    EXPECT_EQ(sample.tokens, (std::vector<int64_t>{4, 5, 0}));
    EXPECT_EQ(sample.labels, (std::vector<int64_t>{5, 0, 0}));
    EXPECT_EQ(sample.loss_mask, (std::vector<float>{1, 0, 0}));
  }
  EXPECT_GT(num_ends_before_zero, 0);
}

TEST(GptDataset, DocumentsOfASampleAreCutByTheirEndTokensOrByTheirFiles) {
  const Listed source({{1, 2, 9, 3, 4, 9, 5, 6}});
  GptDatasetConfig config = {
      .sequence_length = 7, .tokenizer = {.vocab_size = 10, .eod = 9}, .reset_attention_mask = true};
  const GptDatasetPart part = {.sequences = {0, 1}, .mock = true};
  GptSample sample;
  GptDataset(source, part, config, {}).read(0, sample);
  EXPECT_EQ(sample.document_cuts, (std::vector<int32_t>{3, 6}));
  EXPECT_EQ(sample.position_ids, (std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6}));
  config.reset_position_ids = true;
  config.eod_mask_loss = true;
  GptDataset(source, part, config, {}).read(0, sample);
  EXPECT_EQ(sample.position_ids, (std::vector<int64_t>{0, 1, 2, 0, 1, 2, 0}));
  EXPECT_EQ(sample.loss_mask, (std::vector<float>{1, 1, 0, 1, 1, 0, 1}));
  config.inter_document_masking = true;
  EXPECT_THROW(GptDataset(source, part, config, {}), ConfigError);
}

TEST(GptDataset, ReadsTheSameWhenAnObjectIsUsedAgain) {
  const MockTokenSource source({.vocab_size = 100, .eod = 99});
  const GptDatasetConfig config = {
      .sequence_length = 32, .tokenizer = {.vocab_size = 100, .eod = 99}, .reset_attention_mask = true};
  const GptDataset dataset(source, {.sequences = {0, 50}, .mock = true}, config, {});
  GptSample used, fresh;
  for (int64_t i : {3, 0, 17, 3}) {
    dataset.read(i, used);
    fresh = {};
    dataset.read(i, fresh);
    EXPECT_EQ(used.tokens, fresh.tokens);
    EXPECT_EQ(used.document_cuts, fresh.document_cuts);
  }
  EXPECT_THROW(dataset.read(dataset.size(), used), DataError);
  EXPECT_THROW(dataset.read(-1, used), DataError);
}

}  // namespace
}  // namespace megatron
