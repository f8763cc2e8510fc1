// The GPU memory and the connections that a rank's steps need, known before the first step.
#pragma once

#include "megatron/comm/connection.h"
#include "megatron/comm/rank_places.h"
#include "megatron/training/planning/memory_plan.h"

namespace megatron {

struct PretrainConfig;

struct StepPlan {
  MemoryPlan memory;
  Connections connections;  // what steps use; to be connected before the first one (GpuRanks)
};

/// Trains two steps of rank `rank` on the meta device, in a world without other ranks, and evaluates where the run
/// does: the calls are those of the run, and so are the allocations, event for event, where each sample is one
/// document.
/// @param config  resolved, its vocabulary size included. @param backend  whose kernels' workspaces are counted
/// @param places  of all ranks, where there are several: what is copied between GPUs, and what takes NCCL
StepPlan plan_steps(const PretrainConfig& config, int rank, DeviceKind backend, const RankPlaces& places);

}  // namespace megatron
