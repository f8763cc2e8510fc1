// Classifies the time of steps.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "megatron/core/profile_recorder.h"
#include "megatron/training/profile/op_class.h"

namespace megatron {

/// Sums over the profiled steps of one rank. total_ns = the classes + gap_ns.
struct StepTimes {
  std::array<int64_t, kOpClasses.size()> class_ns{};
  int64_t gap_ns = 0;  // neither an op nor communication: what the host does beside launching ops
  int64_t total_ns = 0;

  int64_t& of(OpClass op_class) { return class_ns[static_cast<size_t>(op_class)]; }
  int64_t of(OpClass op_class) const { return class_ns[static_cast<size_t>(op_class)]; }
};

/// @param steps          in order, apart from each other
/// @param ops            in order; what lies outside of the steps is left out
/// @param communication  in any order. What ops hide of it does not count.
StepTimes step_times(std::span<const TimeSpan> steps, std::span<const OpRecord> ops,
                     std::vector<TimeSpan> communication);

}  // namespace megatron
