// GPU memory use across ranks.
#pragma once

#include <cstdint>
#include <string>

#include "megatron/comm/process_group.h"
#include "megatron/training/planning/memory_plan.h"

namespace megatron {

/// The memory_table() of the rank that will hold most, on all ranks, which call it together.
std::string fullest_memory_table(const ProcessGroup& world, const MemoryPlan& plan, const GpuMemory& gpu);

/// After the first step: what the GPU of the rank with the largest plan has given, how far that is from its plan, and
/// how far it is on any rank. On all ranks, which call it together.
/// @param planned  planned_gpu_bytes() of this rank. @param in_use  of its GPU
std::string memory_use_text(const ProcessGroup& world, int64_t planned, int64_t in_use);

}  // namespace megatron
