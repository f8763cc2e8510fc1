#include "megatron/training/planning/gpu_memory_check.h"

#include <fmt/core.h>

#include <algorithm>

#include "megatron/comm/texts.h"
#include "megatron/training/planning/step_plan.h"

namespace megatron {
namespace {

constexpr std::string_view kSite = "planned memory";

/// GPUs of one host that reach each other, where the run has another number of ranks than was planned with.
RankPlaces places_for(const PlannedRun& run, const PretrainConfig& config) {
  if (config.parallel.world_size == run.config.parallel.world_size) return run.places;
  std::vector<RankPlace> places;
  for (int64_t rank = 0; rank < config.parallel.world_size; ++rank)
    places.push_back({.host = "host", .host_name = "host", .gpu = std::to_string(rank), .out_of_reach = {}});
  return RankPlaces(std::move(places));
}

/// The bytes of the first or the last stage of the pipeline, whichever has more.
int64_t planned_bytes(const PlannedRun& run, const PretrainConfig& config, const GpuMemory& gpu) {
  const RankPlaces places = places_for(run, config);
  const auto of_rank = [&](int64_t rank) {
    return planned_gpu_bytes(plan_steps(config, static_cast<int>(rank), run.backend, places).memory, gpu);
  };
  const int64_t first = of_rank(0);
  if (config.parallel.pipeline_model_parallel_size == 1) return first;
  return std::max(first, of_rank(config.parallel.world_size - 1));
}

std::string refusal(const PlannedRun& run, const GpuMemory& gpu, int rank) {
  std::string text = fmt::format("This run does not fit in the memory of the GPU of rank {}.\n{}", rank,
                                 memory_table(run.memory, gpu, rank));
  if (!run.with_flags) return text;
  const auto planned = [&](const PretrainConfig& config) { return planned_bytes(run, config, gpu); };
  return text + "\n" + memory_advice(run.config, run.with_flags, planned, gpu.total - gpu.others);
}

}  // namespace

void require_plan_fits(const ProcessGroup& world, const PlannedRun& run, const GpuMemory& gpu) {
  const int64_t excess = least_gpu_bytes(run.memory, gpu) + gpu.others - gpu.total;
  std::vector<int64_t> all;
  for (const std::string& text : gather_texts(world, std::to_string(excess), kSite)) all.push_back(std::stoll(text));
  const auto fullest = static_cast<int>(std::ranges::max_element(all) - all.begin());
  if (all[static_cast<size_t>(fullest)] <= 0) return;
  throw PlanDoesNotFit(
      broadcast_text(world, world.rank() == fullest ? refusal(run, gpu, fullest) : "", fullest, kSite));
}

}  // namespace megatron
