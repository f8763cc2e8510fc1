// Finds the differences between two checkpoints of any layout, form and number of files.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "megatron/dist_checkpointing/checkpoint_reader.h"

namespace megatron {

/// How one tensor differs. The values are compared where both have the same shape, also across dtypes.
struct TensorDifference {
  enum class Kind { kOnlyInFirst, kOnlyInSecond, kShape, kDtype, kValues };
  std::string key;
  Kind kind = Kind::kValues;
  std::string first, second;  ///< "bfloat16 [2, 48, 24]"; empty where there is no such tensor
  int64_t num_different = 0;  ///< elements beyond the tolerance
  double max_absolute = 0;    ///< largest |a - b|; infinity where only one of them is finite
  double max_relative = 0;    ///< largest |a - b| / max(|a|, |b|)
};
constexpr std::string_view name_of(TensorDifference::Kind kind) {
  switch (kind) {
    case TensorDifference::Kind::kOnlyInFirst:
      return "only in the first";
    case TensorDifference::Kind::kOnlyInSecond:
      return "only in the second";
    case TensorDifference::Kind::kShape:
      return "shape";
    case TensorDifference::Kind::kDtype:
      return "dtype";
    case TensorDifference::Kind::kValues:
      break;
  }
  return "values";
}

struct DiffOptions {
  /// Elements a and b count as equal where |a - b| <= absolute + relative * |b|; equal bits always do.
  double absolute_tolerance = 0, relative_tolerance = 0;
  std::function<bool(const std::string& key)> takes = {};  ///< which tensors to compare; empty: all
  std::function<void(int64_t bytes)> on_bytes = {};        ///< told of the bytes of the first checkpoint; may be empty
};

/// In the order of the keys. Reads both a piece at a time, whatever the size.
/// @throw CheckpointError if one of them is damaged.
std::vector<TensorDifference> compare_checkpoints(const CheckpointReader& first, const CheckpointReader& second,
                                                  const DiffOptions& options);

}  // namespace megatron
