// The data path flags: one dataset, or several mixed by weight.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "megatron/datasets/split.h"

namespace megatron {

/// Path prefixes, and their weights unless the blend follows the datasets' sizes.
struct Blend {
  std::vector<std::string> prefixes;
  std::optional<std::vector<double>> weights;
};

/// Reads the list of `--data-path`: `PREFIX...`, or `WEIGHT PREFIX WEIGHT PREFIX ...` when every first item of a pair
/// is a number as Python's float() reads it; such pairs may also be one quoted item. White space around items is
/// ignored.
/// @throw ConfigError for an empty list, a list where only some pairs have a weight, or a weight that is not finite.
Blend parse_blend(std::span<const std::string> items);

/// The items of a `--data-args-path` file: its text cut at white space. @throw DataError if it cannot be read.
std::vector<std::string> read_data_args_file(const std::string& path);

/// The blends of a `--per-split-data-args-path` file: a JSON object with the keys train, valid and test, each a list of
/// items, a string of items, or null. @throw DataError if it is not such a file; ConfigError as parse_blend.
PerSplit<std::optional<Blend>> read_per_split_data_args_file(const std::string& path);

}  // namespace megatron
