// What a rank will hold in the memory of its GPU, known before its first step.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "megatron/core/device.h"

namespace megatron {

/// All in bytes.
struct MemoryPlan {
  std::array<int64_t, kNumMemoryUses> peaks{};  // of each use, which need not come at the same time
  int64_t peak = 0;                             // of all that lives at a time
  int64_t high_water = 0;                       // with the gaps between blocks: what the arena takes of the device
  int64_t copies = 0;             // where other ranks copy rows and messages to, where GPUs reach each other
  int64_t num_communicators = 0;  // of NCCL: of groups, and of pairs that send without copies
};

/// A GPU beside what the arena takes of it, in bytes.
struct GpuMemory {
  int64_t total = 0;
  int64_t in_use = 0;  // by the context of this process, and by others, before the first tensor
};

/// What the process will have taken after its first step: the plan, and beside it what it has already, the code of
/// kernels that libraries load when they are first used, and NCCL's buffers.
int64_t planned_gpu_bytes(const MemoryPlan& plan, const GpuMemory& gpu);

/// The table at start, a line each.
std::string memory_table(const MemoryPlan& plan, const GpuMemory& gpu, int rank);

/// Of what is in use after the first step, and how far that is from the table.
std::string memory_use_line(const MemoryPlan& plan, const GpuMemory& before, int64_t in_use);

}  // namespace megatron
