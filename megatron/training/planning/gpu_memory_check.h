// Refuses a run that the plan of its memory shows to be too large for its GPUs, and names what fits.
#pragma once

#include "megatron/base/error.h"
#include "megatron/comm/process_group.h"
#include "megatron/comm/rank_places.h"
#include "megatron/core/device.h"
#include "megatron/training/planning/memory_advice.h"
#include "megatron/training/planning/memory_plan.h"

namespace megatron {

/// Has the plan's table and advice in its text, and needs no other estimate.
class PlanDoesNotFit final : public OutOfMemory {
 public:
  using OutOfMemory::OutOfMemory;
};

/// A run, and this rank's plan of it.
struct PlannedRun {
  const PretrainConfig& config;
  const MemoryPlan& memory;
  DeviceKind backend;               // see plan_steps()
  RankPlaces places = {};           // of all ranks; none where there is one
  ConfigWithFlags with_flags = {};  // none: there is no advice
};

/// On all ranks, which call it together and end alike. @param gpu  of this rank
/// @throw PlanDoesNotFit where a rank certainly needs more than its GPU has, with the table of the fullest one
void require_plan_fits(const ProcessGroup& world, const PlannedRun& run, const GpuMemory& gpu);

}  // namespace megatron
