#include "commands/launch/hardware_queues.h"

#include <fmt/core.h>

#include <charconv>
#include <cstdlib>
#include <string_view>

#include "megatron/base/error.h"

namespace megatron {
namespace {

constexpr const char* kVariable = "CUDA_DEVICE_MAX_CONNECTIONS";
constexpr int64_t kMostQueues = 32;

bool is_at_least(std::string_view text, int64_t least) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && value >= least;
}

}  // namespace

std::string open_hardware_queues(int64_t num_streams) {
  const char* set = std::getenv(kVariable);
  if (set && is_at_least(set, num_streams)) return "";
  const std::string before = set ? set : "";
  setenv(kVariable, std::to_string(kMostQueues).c_str(), 1);
  if (!set) return "";
  return fmt::format(
      "{}={} becomes {}: a rank of this run has up to {} streams, and streams of one queue can wait "
      "for each other forever. Unset it, or set at least {}.",
      kVariable, before, kMostQueues, num_streams, num_streams);
}

void require_enough_hardware_queues(int64_t num_streams) {
  require<NotSupported>(
      num_streams <= kMostQueues,
      "a rank of this run has up to {} streams on its GPU, four for each virtual stage of its pipeline "
      "among them, and a GPU has {} queues: streams of one queue can wait for each other "
      "forever. Give fewer virtual stages (--num-virtual-stages-per-pipeline-rank, or more "
      "--num-layers-per-virtual-pipeline-stage), or --device cpu.",
      num_streams, kMostQueues);
}

}  // namespace megatron
