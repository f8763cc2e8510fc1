#include "megatron/training/planning/memory_plan.h"

#include <fmt/core.h>

#include <algorithm>
#include <string_view>

namespace megatron {
namespace {

constexpr int64_t kBytesPerMebibyte = 1 << 20;
/// Code of kernels that cuBLASLt, cuDNN and this program load in the first step, on an H200 with CUDA 13.0.
constexpr int64_t kCodeBytes = 16 * kBytesPerMebibyte;
/// CudaMemory takes pieces of a 64th of what it has, and of 16 MiB at least: on average half of the last one is not
/// needed.
constexpr int64_t kGrowthShare = 128, kLeastGrowth = 8 * kBytesPerMebibyte;

int64_t ahead_of_need(int64_t arena) { return arena == 0 ? 0 : std::max(arena / kGrowthShare, kLeastGrowth); }

std::string line(std::string_view name, double bytes) {
  return fmt::format("\n{:<44}{:>12.2f}", name, bytes / kBytesPerMebibyte);
}

}  // namespace

int64_t library_bytes(const MemoryPlan& plan, const GpuMemory& before, int64_t in_use, int64_t arena) {
  return std::max<int64_t>(0, in_use - before.in_use - arena - ahead_of_need(arena) - plan.copies);
}

int64_t planned_gpu_bytes(const MemoryPlan& plan, const GpuMemory& gpu) {
  return least_gpu_bytes(plan, gpu) + ahead_of_need(plan.high_water) + kCodeBytes;
}

int64_t least_gpu_bytes(const MemoryPlan& plan, const GpuMemory& gpu) {
  return plan.high_water + gpu.in_use + gpu.libraries + plan.copies;
}

std::string memory_table(const MemoryPlan& plan, const GpuMemory& gpu, int rank) {
  std::string text = fmt::format("{:<44}{:>12}", fmt::format("memory of rank {}, planned", rank), "MiB");
  for (int use = 0; use < kNumMemoryUses; ++use)
    text += line(name_of(static_cast<MemoryUse>(use)), static_cast<double>(plan.peaks[static_cast<size_t>(use)]));
  text += line("all of these at a time, at most", static_cast<double>(plan.peak));
  text += line(plan.cuts_samples ? "arena, with gaps; cut samples take more" : "arena, with gaps between blocks",
               static_cast<double>(plan.high_water));
  text += line("what it takes ahead of need, about", static_cast<double>(ahead_of_need(plan.high_water)));
  text += line(gpu.others > 0 ? "context of CUDA" : "in use at start: context of CUDA, and others",
               static_cast<double>(gpu.in_use));
  text += line(plan.num_communicators > 0 ? fmt::format("NCCL, {} communicators, and code", plan.num_communicators)
                                          : std::string("code of kernels that is loaded"),
               static_cast<double>(gpu.libraries));
  if (plan.copies > 0) text += line("copies between GPUs, about", static_cast<double>(plan.copies));
  text += line("code of kernels of the first step, about", kCodeBytes);
  if (gpu.others > 0) text += line("the driver's, and of other processes", static_cast<double>(gpu.others));
  const int64_t planned = planned_gpu_bytes(plan, gpu) + gpu.others;
  text += line("in all", static_cast<double>(planned));
  text += line(planned > gpu.total ? "MORE than the GPU has" : "of", static_cast<double>(gpu.total));
  if (plan.host > 0) text += line("beside it, page-locked memory of the host", static_cast<double>(plan.host));
  return text;
}

}  // namespace megatron
