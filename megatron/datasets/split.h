// The parts of a dataset for train, validation and test (`--split`).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace megatron {

enum class Split { kTrain, kValid, kTest };

inline constexpr std::array<Split, 3> kSplits = {Split::kTrain, Split::kValid, Split::kTest};

constexpr size_t index_of(Split split) { return static_cast<size_t>(split); }
/// "train", "valid" or "test".
constexpr std::string_view name_of(Split split) {
  constexpr std::array<std::string_view, 3> kNames = {"train", "valid", "test"};
  return kNames[index_of(split)];
}

/// One value for each split.
template <class T>
using PerSplit = std::array<T, 3>;

/// Numbers of requested samples; nullopt is one pass over the data.
using SampleCounts = PerSplit<std::optional<int64_t>>;

/// Part of a dataset: fractions 0 <= lower < upper <= about 1 of its elements.
struct SplitBounds {
  double lower = 0;
  double upper = 0;
};
/// The part of each split; nullopt if it has none.
using SplitMatrix = PerSplit<std::optional<SplitBounds>>;

/// Elements begin .. end-1 of a dataset.
struct IndexRange {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
};

/// Reads a split such as "969, 30, 1": up to three weights, normalised by their sum; all that is not a digit or a point
/// separates them.  Source: Megatron Core, parse_and_normalize_split.
/// @throw ConfigError if there is no positive weight, more than three, or something like "1.2.3".
SplitMatrix parse_split(std::string_view text);

/// The elements within `bounds` of `num_elements`: both ends rounded half to even.
IndexRange split_range(const SplitBounds& bounds, int64_t num_elements);

}  // namespace megatron
