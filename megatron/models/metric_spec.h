// A number that a training step counts on the device.
#pragma once

#include <string>
#include <vector>

#include "megatron/comm/process_group.h"
#include "megatron/core/dtype.h"

namespace megatron {

enum class MetricReduction { kSum, kMean, kMax };  // of NaN and others a maximum is undefined

/// An accumulator in device memory, zero when the step begins. The accumulators of ranks are reduced element by element
/// when the step's forward and backward are over.
struct MetricSpec {
  std::string name;
  DType dtype = DType::kFloat64;  // or kInt64
  int64_t size = 1;
  MetricReduction reduction = MetricReduction::kSum;
  std::vector<ProcessGroup> groups;  // of the reduction, one after the other; none: each rank keeps its own
};

}  // namespace megatron
