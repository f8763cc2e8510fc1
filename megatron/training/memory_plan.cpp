#include "megatron/training/memory_plan.h"

#include <fmt/core.h>

#include <cmath>
#include <limits>
#include <string_view>
#include <vector>

#include "megatron/comm/meta/meta_world.h"
#include "megatron/comm/nccl/copied_groups.h"
#include "megatron/training/blank_batches.h"
#include "megatron/training/config/layouts.h"
#include "megatron/training/config/schedules.h"
#include "megatron/training/trainer.h"

namespace megatron {
namespace {

/// More than any device has: the plan of what does not fit tells how much it would be.
constexpr int64_t kAnyCapacity = int64_t{1} << 46;

constexpr int64_t kMebibyte = 1 << 20;
/// Code of kernels that cuBLASLt, cuDNN and this program load in the first step, and cuBLAS's own memory, on an H200
/// with CUDA 13.0.
constexpr int64_t kCodeBytes = 200 * kMebibyte;
/// Of NCCL 2.28 for its first communicator, code included, and for each other one. On two H200s of one host.
constexpr int64_t kNcclBytes = 900 * kMebibyte, kNcclConnectionBytes = 450 * kMebibyte;
/// CudaMemory takes pieces of a 64th of what it has: on average half of the last one is not needed.
constexpr int64_t kGrowthShare = 128;

int64_t nccl_bytes(const MemoryPlan& plan) {
  return plan.num_connections == 0 ? 0 : kNcclBytes + (plan.num_connections - 1) * kNcclConnectionBytes;
}

/// Two steps, as the first makes what later ones find, with the largest batch.
void take_steps(Trainer& trainer) {
  const PretrainConfig& config = trainer.config();
  const int64_t sequence_length = config.model.seq_length.value();
  const BatchSize size = microbatch_calculator_of(config).at(std::numeric_limits<int64_t>::max());
  const auto batches = blank_batches(size.num_microbatches, config.training.micro_batch_size.value(), sequence_length);
  for (int step = 0; step < 2; ++step) trainer.train_step(batches);
  if (!config.validation.evaluates()) return;
  const BatchSize evaluated = eval_microbatch_calculator_of(config).at(0);
  trainer.evaluate(
      blank_batches(evaluated.num_microbatches, config.validation.eval_micro_batch_size.value(), sequence_length));
}

/// Beside those of the steps there is the world, in which ranks compare what they were given.
void count_connections(const MetaWorld& world, int tensor_parallel_size, MemoryPlan& plan) {
  if (world.size() == 1) return;
  Connections connections = world.connections();
  connections.insert({.group = "world"});
  plan.num_connections = std::ssize(connections);
  plan.copies_rows = tensor_parallel_size <= CopiedGroups::kMostRanks &&
                     connections.contains({.group = std::string(CopiedGroups::kName)});
}

std::string line(std::string_view name, double bytes) {
  return fmt::format("\n{:<44}{:>12.2f}", name, bytes / kMebibyte);
}

}  // namespace

MemoryPlan plan_memory(const PretrainConfig& config, int rank, DeviceKind backend) {
  MetaWorld world(rank, static_cast<int>(config.parallel.world_size));
  const ProcessGroupCollection groups = world.size() == 1
                                            ? ProcessGroupCollection::single()
                                            : ProcessGroupCollection::make(world, parallel_layout_of(config));
  Trainer trainer(config,
                  {.device = DeviceKind::kMeta, .meta_of = backend, .capacity_bytes = kAnyCapacity, .groups = groups});
  take_steps(trainer);
  const Arena& arena = trainer.device().arena;
  MemoryPlan plan{.peak = arena.total().peak, .high_water = arena.high_water_bytes()};
  count_connections(world, groups.tp.size(), plan);
  for (int use = 0; use < kNumMemoryUses; ++use)
    plan.peaks[static_cast<size_t>(use)] = arena.amount(static_cast<MemoryUse>(use)).peak;
  return plan;
}

int64_t planned_gpu_bytes(const MemoryPlan& plan, const GpuMemory& gpu) {
  return plan.high_water + plan.high_water / kGrowthShare + gpu.in_use + kCodeBytes + nccl_bytes(plan) +
         (plan.copies_rows ? CopiedGroups::kBytesPerRank : 0);
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
  if (plan.num_connections > 0)
    text +=
        line(fmt::format("NCCL, {} communicators, about", plan.num_connections), static_cast<double>(nccl_bytes(plan)));
  if (plan.copies_rows) text += line("copies between ranks of tensor parallelism", CopiedGroups::kBytesPerRank);
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
