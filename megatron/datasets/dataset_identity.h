// The description of an index in Megatron's form, from which the names of cache files are made.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "megatron/datasets/python_json.h"
#include "megatron/datasets/split.h"
#include "megatron/datasets/tokenizer_facts.h"

namespace megatron {

/// Identity of one GPT dataset of one split.
struct GptDatasetIdentity {
  std::string class_name = "GPTDataset";
  std::optional<std::string> dataset_path;  // nullopt for mock data
  std::optional<int64_t> num_samples;
  Split index_split = Split::kTrain;
  int64_t random_seed = 0;
  int64_t sequence_length = 0;
  /// The text of --split as it was typed, and its values; nullopt when each split has its own paths.
  std::optional<std::string> split;
  std::optional<SplitMatrix> split_matrix;
  TokenizerIdentity tokenizer;

  std::string description() const;
  void describe(PythonJson& json) const;
};

/// Weights of a blend: normalised fractions when its size was requested, or the members' sizes for one pass over all.
using BlendWeights = std::variant<std::vector<double>, std::vector<int64_t>>;

/// Identity of a blend of one split.
struct BlendIdentity {
  std::vector<GptDatasetIdentity> datasets;
  Split split = Split::kTrain;
  BlendWeights weights;
  std::optional<int64_t> size;

  std::string description() const;
};

/// `<md5 of description>-<class>-<split>`, the start of the names of its cache files.
std::string cache_stem(std::string_view description, std::string_view class_name, Split split);

}  // namespace megatron
