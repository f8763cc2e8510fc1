// The backward of schedules in which W follows B.
#pragma once

#include "megatron/pipeline_parallel/action.h"

namespace megatron {

/// Appends BW, or B with W right after it.
inline void add_backward(Schedule& schedule, int chunk, int micro_batch, WeightGradient weight_gradient) {
  const auto add = [&](ActionKind kind) {
    schedule.push_back({.kind = kind, .chunk = chunk, .micro_batch = micro_batch});
  };
  if (weight_gradient == WeightGradient::kFused) return add(ActionKind::kBW);
  add(ActionKind::kB);
  add(ActionKind::kW);
}

}  // namespace megatron
