#include "tests/datasets/builder_case.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "megatron/datasets/blended_dataset.h"
#include "tests/datasets/golden.h"
#include "tests/datasets/gpt_case.h"

namespace megatron::testing {
namespace {

using nlohmann::json;

void expect_equal_blend(const BlendedDataset& blend, const json& expected) {
  EXPECT_EQ(md5_of(blend.identity().description()), expected["hash"].get<std::string>())
      << blend.identity().description();
  ASSERT_EQ(blend.members().size(), expected["members"].size());
  for (size_t j = 0; j < blend.members().size(); ++j) {
    const auto& member = dynamic_cast<const GptDataset&>(*blend.members()[j]);
    const json& one = expected["members"][j];
    EXPECT_EQ(*member.identity().dataset_path, one["prefix"].get<std::string>());
    EXPECT_EQ(member.size(), one["length"].get<int64_t>());
    EXPECT_EQ(member.identity().num_samples.has_value(), !one["num_samples"].is_null());
    EXPECT_EQ(md5_of(member.identity().description()), one["hash"].get<std::string>());
  }
  for (int64_t i = 0; i < blend.size(); ++i) {
    EXPECT_EQ(blend.index().dataset_index[i], expected["dataset_index"][static_cast<size_t>(i)].get<int64_t>());
    EXPECT_EQ(blend.index().dataset_sample_index[i],
              expected["dataset_sample_index"][static_cast<size_t>(i)].get<int64_t>());
  }
}

void expect_equal_dataset(const Dataset* dataset, const json& expected) {
  ASSERT_EQ(dataset == nullptr, expected.is_null());
  if (dataset == nullptr) return;
  EXPECT_EQ(dataset->size(), expected["length"].get<int64_t>());
  GptSample sample;
  if (expected.contains("first")) {
    dataset->read(0, sample);
    EXPECT_EQ(sample.tokens, list<int64_t>(expected["first"]));
    return;
  }
  if (expected["type"] == "BlendedDataset") {
    expect_equal_blend(dynamic_cast<const BlendedDataset&>(*dataset), expected);
  } else {
    EXPECT_EQ(md5_of(dynamic_cast<const GptDataset&>(*dataset).identity().description()),
              expected["hash"].get<std::string>());
  }
  for (const json& one : expected["samples"]) {
    dataset->read(one["index"].get<int64_t>(), sample);
    EXPECT_EQ(sample.tokens, list<int64_t>(one["tokens"]));
    if (!one.contains("labels")) continue;
    EXPECT_EQ(sample.labels, list<int64_t>(one["labels"]));
    EXPECT_EQ(sample.dataset_id, one["dataset_id"].get<int32_t>());
  }
}

}  // namespace

GptDataSources read_sources(const json& config) {
  GptDataSources sources;
  if (config.contains("blend")) sources.blend = read_blend(config["blend"]);
  if (config.contains("split")) sources.split = config["split"].get<std::string>();
  if (config.contains("blend_per_split")) {
    for (size_t i = 0; i < 3; ++i) sources.blend_per_split[i] = read_blend(config["blend_per_split"][i]);
  }
  sources.multiple_validation_sets = config.value("multiple_validation_sets", false);
  return sources;
}

void expect_equal_datasets(const GptDatasets& datasets, const json& expected) {
  expect_equal_dataset(datasets.train.get(), expected["train"]);
  expect_equal_dataset(datasets.test.get(), expected["test"]);
  const json& valid = expected["valid"];
  if (valid.is_array()) {
    ASSERT_EQ(datasets.valid.size(), valid.size());
    for (size_t i = 0; i < valid.size(); ++i) expect_equal_dataset(datasets.valid[i].get(), valid[i]);
  } else {
    expect_equal_dataset(datasets.valid.empty() ? nullptr : datasets.valid[0].get(), valid);
  }
}

}  // namespace megatron::testing
