#include "tests/datasets/gpt_case.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/datasets/golden.h"

namespace megatron::testing {
namespace {

using nlohmann::json;

std::string dtype_name(NpyDtype dtype) {
  switch (dtype) {
    case NpyDtype::kInt16:
      return "<i2";
    case NpyDtype::kInt32:
      return "<i4";
    case NpyDtype::kUInt32:
      return "<u4";
    case NpyDtype::kInt64:
      return "<i8";
  }
  return "";
}

/// The elements of a list or a list of pairs.
std::vector<int64_t> flattened(const json& array) {
  std::vector<int64_t> values;
  for (const json& item : array) {
    if (item.is_array()) {
      for (const json& value : item) values.push_back(value.get<int64_t>());
    } else {
      values.push_back(item.get<int64_t>());
    }
  }
  return values;
}

std::vector<int64_t> elements(const NpyArray& array) {
  std::vector<int64_t> values(static_cast<size_t>(array.num_elements()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = array[static_cast<int64_t>(i)];
  return values;
}

void expect_equal_array(const NpyArray& array, const json& expected, const std::string& name) {
  SCOPED_TRACE(name);
  if (expected.contains(name + "_dtype")) {
    EXPECT_EQ(dtype_name(array.dtype()), expected[name + "_dtype"].get<std::string>());
  }
  if (expected.contains(name)) {
    EXPECT_EQ(elements(array), flattened(expected[name]));
  }
  if (expected.contains(name + "_md5")) {
    EXPECT_EQ(array.shape(), list<int64_t>(expected[name + "_shape"]));
    EXPECT_EQ(md5_hex(array.bytes()), expected[name + "_md5"].get<std::string>());
  }
}

/// The rows of an s x s mask ('1' hides a column) that the cuts stand for.
std::vector<std::string> mask_of(const GptSample& sample) {
  const size_t s = sample.tokens.size();
  std::vector<std::string> rows(s, std::string(s, '1'));
  size_t start = 0;
  for (size_t row = 0; row < s; ++row) {
    if (std::binary_search(sample.document_cuts.begin(), sample.document_cuts.end(), static_cast<int32_t>(row)))
      start = row;
    for (size_t column = start; column <= row; ++column) rows[row][column] = '0';
  }
  return rows;
}

/// The borders within a sample that cu_seqlens names; documents without tokens make it name one twice.
std::vector<int32_t> cuts_of(const json& cu_seqlens, size_t s) {
  std::set<int32_t> cuts;
  for (const json& border : cu_seqlens) cuts.insert(border.get<int32_t>());
  cuts.erase(0);
  cuts.erase(static_cast<int32_t>(s));
  return {cuts.begin(), cuts.end()};
}

void expect_equal_sample(const GptDataset& dataset, const json& expected) {
  // The padding token is Python's None there, with which the reference cannot pad a short sample.
  if (is_error(expected)) return;
  SCOPED_TRACE(expected["index"].dump());
  GptSample sample;
  if (expected["index"].is_null()) {
    dataset.read_padding(sample);
  } else {
    const auto index = expected["index"].get<int64_t>();
    dataset.read(index < 0 ? index + dataset.size() : index, sample);
  }
  EXPECT_EQ(sample.tokens, list<int64_t>(expected["tokens"]));
  EXPECT_EQ(sample.labels, list<int64_t>(expected["labels"]));
  EXPECT_EQ(sample.loss_mask, list<float>(expected["loss_mask"]));
  EXPECT_EQ(sample.position_ids, list<int64_t>(expected["position_ids"]));
  if (expected.contains("attention_mask")) {
    EXPECT_EQ(mask_of(sample), list<std::string>(expected["attention_mask"]));
  }
  if (expected.contains("cu_seqlens")) {
    EXPECT_EQ(sample.document_cuts, cuts_of(expected["cu_seqlens"], sample.tokens.size()));
  }
}

bool flag(const json& config, const char* name, bool otherwise) {
  return config.contains(name) ? config[name].get<bool>() : otherwise;
}

}  // namespace

int64_t vocab_size_of(const json& expected) { return expected["eod"].get<int64_t>() + 1; }

TokenizerFacts null_tokenizer(int64_t vocab_size) {
  TokenizerFacts facts;
  facts.vocab_size = vocab_size;
  facts.eod = vocab_size - 1;
  facts.identity = {{"class", "megatron.core.tokenizers.text.text_tokenizer.MegatronTokenizerText"},
                    {"tokenizer_path", std::nullopt},
                    {"vocab_size", std::to_string(vocab_size)}};
  return facts;
}

GptDatasetConfig read_config(const json& config, int64_t vocab_size) {
  GptDatasetConfig ours;
  ours.sequence_length = config["sequence_length"].get<int64_t>();
  ours.random_seed = config["random_seed"].get<int64_t>();
  ours.tokenizer = null_tokenizer(vocab_size);
  ours.reset_position_ids = flag(config, "reset_position_ids", false);
  ours.reset_attention_mask = flag(config, "reset_attention_mask", false);
  ours.eod_mask_loss = flag(config, "eod_mask_loss", false);
  ours.inter_document_masking = flag(config, "inter_document_masking", false);
  ours.allow_ambiguous_pad_tokens = flag(config, "allow_ambiguous_pad_tokens", false);
  ours.add_extra_token_to_sequence = flag(config, "add_extra_token_to_sequence", true);
  ours.drop_last_partial_validation_sequence = flag(config, "drop_last_partial_validation_sequence", true);
  if (config.contains("mid_level_dataset_surplus")) {
    ours.mid_level_dataset_surplus = config["mid_level_dataset_surplus"].get<double>();
  }
  return ours;
}

SampleCounts read_sizes(const json& sizes) {
  SampleCounts counts;
  for (size_t i = 0; i < counts.size(); ++i) {
    if (!sizes[i].is_null()) counts[i] = sizes[i].get<int64_t>();
  }
  return counts;
}

std::optional<Blend> read_blend(const json& blend) {
  if (blend.is_null()) return std::nullopt;
  Blend ours{list<std::string>(blend[0]), std::nullopt};
  if (!blend[1].is_null()) ours.weights = list<double>(blend[1]);
  return ours;
}

void expect_equal_split(const GptDataset* dataset, const json& expected) {
  ASSERT_EQ(dataset == nullptr, expected.is_null());
  if (dataset == nullptr) return;
  EXPECT_EQ(dataset->size(), expected["length"].get<int64_t>());
  const std::string description = dataset->identity().description();
  if (expected.contains("hash")) {
    EXPECT_EQ(md5_of(description), expected["hash"].get<std::string>()) << description;
  }
  expect_equal_array(dataset->document_index(), expected, "document_index");
  expect_equal_array(dataset->sample_index(), expected, "sample_index");
  expect_equal_array(dataset->shuffle_index(), expected, "shuffle_index");
  for (const json& sample : expected["samples"]) expect_equal_sample(*dataset, sample);
}

void expect_equal_case(const json& expected, const GptDatasetConfig& config) {
  GptDataSources sources;
  if (expected.contains("prefix")) {
    sources.blend = Blend{{expected["prefix"].get<std::string>()}, std::nullopt};
    sources.split = expected["config"]["split"].get<std::string>();
  } else {
    sources.mock_data = true;
  }
  const GptDatasets datasets = build_gpt_datasets(config, sources, read_sizes(expected["sizes"]), {});
  const Dataset* valid = datasets.valid.empty() ? nullptr : datasets.valid[0].get();
  for (const auto& [name, dataset] : {std::pair<const char*, const Dataset*>{"train", datasets.train.get()},
                                      {"valid", valid},
                                      {"test", datasets.test.get()}}) {
    SCOPED_TRACE(name);
    expect_equal_split(dynamic_cast<const GptDataset*>(dataset), expected[name]);
  }
}

}  // namespace megatron::testing
