// Builds the train, validation and test datasets of a run from its data flags.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "megatron/base/message_log.h"
#include "megatron/datasets/data_paths.h"
#include "megatron/datasets/dataset.h"
#include "megatron/datasets/gpt_dataset_config.h"
#include "megatron/datasets/jsonl_rows.h"
#include "megatron/datasets/token_source.h"

namespace megatron {

/// The source of the data. Exactly one of mock data, `blend` and `blend_per_split` is given.
struct GptDataSources {
  bool mock_data = false;
  /// --data-path, and the --split that cuts it into train, validation and test.
  std::optional<Blend> blend;
  std::optional<std::string> split;
  /// --train-data-path, --valid-data-path, --test-data-path.
  PerSplit<std::optional<Blend>> blend_per_split;
  /// Several validation paths are separate datasets instead of a blend.
  bool multiple_validation_sets = false;
};

/// The datasets of a run.
struct GptDatasets {
  /// The sources of the datasets, which refer to them.
  std::vector<std::unique_ptr<TokenSource>> sources;
  std::vector<std::unique_ptr<JsonlRows>> conversations;
  std::unique_ptr<Dataset> train;               // null where the split takes no data
  std::vector<std::unique_ptr<Dataset>> valid;  // one; several with multiple_validation_sets; none
  std::unique_ptr<Dataset> test;
};

/// Contradictions of the flags: one text for each broken rule. @param sizes  see build_gpt_datasets
std::vector<std::string> mistakes_of(const GptDataSources& sources, const SampleCounts& sizes);

/// Builds or loads all datasets. Deterministic: every rank gets the same, whether or not the cache is shared.
/// Source: Megatron Core, BlendedMegatronDatasetBuilder.
/// @param sizes  samples that each split needs; nullopt is one pass over its data.
/// @throw ConfigError listing every contradiction of the flags; DataError for files.
GptDatasets build_gpt_datasets(const GptDatasetConfig& config, const GptDataSources& sources, const SampleCounts& sizes,
                               const MessageLog& log);

}  // namespace megatron
