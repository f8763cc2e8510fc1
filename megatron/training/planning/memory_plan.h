// The GPU memory that a rank will hold, known before its first step.
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
  int64_t host = 0;                             // page-locked memory of the host, which is no GPU memory
  int64_t copies = 0;             // where other ranks copy rows and messages to, where GPUs reach each other
  bool cuts_samples = false;      // at documents, which takes attention more: all of the above is of whole samples
  int64_t num_communicators = 0;  // of NCCL: of groups, and of pairs that send without copies
};

/// A GPU beside what the arena takes of it, in bytes.
struct GpuMemory {
  int64_t total = 0;
  int64_t others = 0;     // the driver's, and of other processes, where the driver tells what is this one's; else 0
  int64_t in_use = 0;     // before the first tensor: the context; with what others have, where nobody tells
  int64_t libraries = 0;  // by NCCL and code of kernels, before the first step: library_bytes()
};

/// The memory in use that was not there before the first tensor and is not of the arena or of copies between GPUs.
/// @param in_use  counted like before.in_use, before the first step, when ranks are connected. @param arena
/// Arena::high_water_bytes()
int64_t library_bytes(const MemoryPlan& plan, const GpuMemory& before, int64_t in_use, int64_t arena);

/// The memory of the process after the first step, counted like gpu.in_use: the plan, the memory measured beside it,
/// and the code of kernels that the step is the first to use.
int64_t planned_gpu_bytes(const MemoryPlan& plan, const GpuMemory& gpu);

/// The part of it that is certain: without what is taken ahead of need and the code of the first step.
int64_t least_gpu_bytes(const MemoryPlan& plan, const GpuMemory& gpu);

/// The table before the first step, a line each.
std::string memory_table(const MemoryPlan& plan, const GpuMemory& gpu, int rank);

}  // namespace megatron
