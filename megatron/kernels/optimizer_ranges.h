// Ranges of parameters that one optimizer call updates: a table in device memory that is written once, so that a
// GPU needs one launch for all of them.
#pragma once

#include "megatron/core/stream.h"
#include "megatron/core/view.h"
#include "megatron/kernels/stochastic_rounding.h"

namespace megatron::kernels {

/// Elements of a range that a block of a GPU processes.
inline constexpr int64_t kRangeChunk = 8192;

/// Flat contiguous operands of one range, as in AdamArgs and SgdArgs; null if the optimizer has none.
struct OptimizerRange {
  void* parameter = nullptr;
  void* remainder = nullptr;
  const void* gradient = nullptr;
  void *first_moment = nullptr, *second_moment = nullptr;
  void* model_weight = nullptr;
  const double* learning_rate = nullptr;  // in device memory; null: state->learning_rate
  double weight_decay_multiplier = 1;
  int64_t size = 0;         // elements
  int64_t first_chunk = 0;  // chunks of all ranges before this one
  StochasticRounding rounding;
};

/// Chunks of a range; the last may be a part of one.
constexpr int64_t num_range_chunks(int64_t size) { return (size + kRangeChunk - 1) / kRangeChunk; }

/// Dtypes of the operands; those of null operands are ignored.
struct RangeDTypes {
  bool has_remainders = false;  // instead of parameters
  DType parameter = DType::kFloat32, gradient = DType::kFloat32, model_weight = DType::kFloat32;
  DType first_moment = DType::kFloat32, second_moment = DType::kFloat32;
  bool operator==(const RangeDTypes&) const = default;
};

/// A table, and the common properties of its ranges.
struct OptimizerRanges {
  const OptimizerRange* table = nullptr;  // [num_ranges] in device memory
  int64_t num_ranges = 0, num_chunks = 0;
  RangeDTypes dtypes;
};

/// A vector of `size` elements, undefined without data.
inline View range_view(void* data, DType dtype, int64_t size) { return data ? View{data, dtype, {size}, {1}} : View{}; }
inline ConstView range_view(const void* data, DType dtype, int64_t size) {
  return range_view(const_cast<void*>(data), dtype, size);
}

}  // namespace megatron::kernels
