#include "megatron/training/planning/ranks_memory.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "megatron/comm/texts.h"

namespace megatron {
namespace {

std::vector<int64_t> gather_numbers(const ProcessGroup& world, int64_t number, std::string_view site) {
  std::vector<int64_t> numbers;
  for (const std::string& text : gather_texts(world, std::to_string(number), site)) numbers.push_back(std::stoll(text));
  return numbers;
}

int place_of_most(const std::vector<int64_t>& numbers) {
  return static_cast<int>(std::ranges::max_element(numbers) - numbers.begin());
}

double departure(int64_t in_use, int64_t planned) {
  return static_cast<double>(in_use) / static_cast<double>(planned) - 1;
}

}  // namespace

std::string fullest_memory_table(const ProcessGroup& world, const MemoryPlan& plan, const GpuMemory& gpu) {
  constexpr std::string_view kSite = "planned memory";
  const int fullest = place_of_most(gather_numbers(world, planned_gpu_bytes(plan, gpu), kSite));
  return broadcast_text(world, world.rank() == fullest ? memory_table(plan, gpu, fullest) : "", fullest, kSite);
}

std::string memory_use_text(const ProcessGroup& world, int64_t planned, int64_t in_use) {
  constexpr double kMebibyte = 1 << 20;
  constexpr std::string_view kSite = "memory in use";
  const std::vector<int64_t> plans = gather_numbers(world, planned, kSite), uses = gather_numbers(world, in_use, kSite);
  const auto fullest = static_cast<size_t>(place_of_most(plans));
  const double apart = departure(uses[fullest], plans[fullest]);
  std::string text =
      fmt::format("memory of the GPU of rank {} in use: {:.0f} MiB, {:.1f} % {} than planned", fullest,
                  static_cast<double>(uses[fullest]) / kMebibyte, 100 * std::abs(apart), apart > 0 ? "more" : "less");
  if (plans.size() == 1) return text;
  double most = 0;
  for (size_t rank = 0; rank < plans.size(); ++rank)
    most = std::max(most, std::abs(departure(uses[rank], plans[rank])));
  return text + fmt::format(", {:.1f} % at most on any rank", 100 * most);
}

}  // namespace megatron
