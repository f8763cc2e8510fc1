// GPT data sets as tests/golden/data/gpt and reference_compare.py write them down, compared with ours.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "megatron/datasets/dataset_builder.h"
#include "megatron/datasets/gpt_dataset.h"

namespace megatron::testing {

/// Returns the vocabulary of a case of tests/golden/data/gpt, whose last id ends documents.
int64_t vocab_size_of(const nlohmann::json& expected);
/// The options of a case's "config", with the reference's null tokenizer of `vocab_size` ids.
GptDatasetConfig read_config(const nlohmann::json& config, int64_t vocab_size);
/// The tokenizer that the reference's cases use: ids 0 .. vocab_size - 1, the last one ends documents, no padding.
TokenizerFacts null_tokenizer(int64_t vocab_size);
/// [train, valid, test], null for one pass.
SampleCounts read_sizes(const nlohmann::json& sizes);
/// [[prefixes], weights or null], or null.
std::optional<Blend> read_blend(const nlohmann::json& blend);

/// Expects lengths, hash, index arrays and samples of one split.
void expect_equal_split(const GptDataset* dataset, const nlohmann::json& expected);
/// Builds the data sets of a case and expects all of its splits. Prefixes are relative to the working directory.
void expect_equal_case(const nlohmann::json& expected, const GptDatasetConfig& config);

}  // namespace megatron::testing
