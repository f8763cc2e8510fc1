#include "megatron/training/memory_plan.h"

#include <fmt/core.h>

#include <cmath>
#include <string_view>

#include "megatron/comm/nccl/copied_groups.h"

namespace megatron {
namespace {

constexpr int64_t kMebibyte = 1 << 20;
/// Code of kernels that cuBLASLt, cuDNN and this program load in the first step, and cuBLAS's own memory, on an H200
/// with CUDA 13.0.
constexpr int64_t kCodeBytes = 200 * kMebibyte;
/// Of NCCL 2.28 for its first communicator, code included, and for each other one. On two H200s of one host.
constexpr int64_t kNcclBytes = 900 * kMebibyte, kNcclConnectionBytes = 450 * kMebibyte;
/// CudaMemory takes pieces of a 64th of what it has: on average half of the last one is not needed.
constexpr int64_t kGrowthShare = 128;

int64_t nccl_bytes(const MemoryPlan& plan) {
  return plan.num_communicators == 0 ? 0 : kNcclBytes + (plan.num_communicators - 1) * kNcclConnectionBytes;
}

std::string line(std::string_view name, double bytes) {
  return fmt::format("\n{:<44}{:>12.2f}", name, bytes / kMebibyte);
}

}  // namespace

int64_t planned_gpu_bytes(const MemoryPlan& plan, const GpuMemory& gpu) {
  return plan.high_water + plan.high_water / kGrowthShare + gpu.in_use + kCodeBytes + nccl_bytes(plan) + plan.copies;
}

std::string memory_table(const MemoryPlan& plan, const GpuMemory& gpu, int rank) {
  std::string text = fmt::format("{:<44}{:>12}", fmt::format("memory of rank {}, planned", rank), "MiB");
  for (int use = 0; use < kNumMemoryUses; ++use)
    text += line(name_of(static_cast<MemoryUse>(use)), static_cast<double>(plan.peaks[static_cast<size_t>(use)]));
  text += line("all of these at a time, at most", static_cast<double>(plan.peak));
  text += line("arena, with gaps between blocks", static_cast<double>(plan.high_water));
  text += line("what it takes ahead of need, about", static_cast<double>(plan.high_water) / kGrowthShare);
  text += line("in use already: context of CUDA, and others", static_cast<double>(gpu.in_use));
  text += line("code of kernels, about", kCodeBytes);
  if (plan.num_communicators > 0)
    text += line(fmt::format("NCCL, {} communicators, about", plan.num_communicators),
                 static_cast<double>(nccl_bytes(plan)));
  if (plan.copies > 0) text += line("copies between GPUs, about", static_cast<double>(plan.copies));
  const int64_t planned = planned_gpu_bytes(plan, gpu);
  text += line("in all", static_cast<double>(planned));
  return text + line(planned > gpu.total ? "MORE than the GPU has" : "of", static_cast<double>(gpu.total));
}

std::string memory_use_line(const MemoryPlan& plan, const GpuMemory& before, int64_t in_use) {
  const auto planned = static_cast<double>(planned_gpu_bytes(plan, before)), used = static_cast<double>(in_use);
  return fmt::format("memory of the GPU in use: {:.0f} MiB, {:.1f} % {} than planned", used / kMebibyte,
                     100 * std::abs(used / planned - 1), used > planned ? "more" : "less");
}

}  // namespace megatron
