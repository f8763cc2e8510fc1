#include "megatron/dist_checkpointing/checkpoint_metadata.h"

#include <fmt/core.h>

#include <algorithm>

#include "megatron/base/error.h"
#include "megatron/base/word_list.h"

namespace megatron {

std::optional<std::string> GlobalTensor::tiling_problem() const {
  std::vector<Box> boxes;
  for (const StoredChunk& chunk : chunks) boxes.push_back(chunk.box);
  return megatron::tiling_problem(shape, boxes);
}

void CheckpointMetadata::merge(const CheckpointMetadata& other) {
  for (const auto& [key, tensor] : other.tensors) {
    const auto [place, is_first] = tensors.try_emplace(key, tensor);
    if (is_first) continue;
    GlobalTensor& mine = place->second;
    require<CheckpointError>(mine.shape == tensor.shape && mine.type == tensor.type,
                             "[checkpoint] {} is {} {} on one rank and {} {} on another. Every rank must describe the "
                             "whole tensor in the same way.",
                             key, mine.type, mine.shape, tensor.type, tensor.shape);
    if (mine.shape.num_elements() == 0) continue;  // one chunk says it all
    mine.chunks.insert(mine.chunks.end(), tensor.chunks.begin(), tensor.chunks.end());
  }
  for (const auto& [key, item] : other.objects)
    require<CheckpointError>(objects.try_emplace(key, item).second,
                             "[checkpoint] two ranks stored the object {}, in {} and {}. Only one of the ranks that "
                             "hold it may add it.",
                             key, objects.find(key)->second.file, item.file);
}

void CheckpointMetadata::require_complete() const {
  constexpr size_t kMostNamed = 10;
  std::vector<std::string> problems;
  size_t num_problems = 0;
  for (const auto& [key, tensor] : tensors) {
    const auto problem = tensor.tiling_problem();
    if (problem && ++num_problems <= kMostNamed)
      problems.push_back(fmt::format("{} {}: {}", key, tensor.shape, *problem));
  }
  require<CheckpointError>(num_problems == 0,
                           "[checkpoint] the ranks have not stored each element of {} tensors exactly once: {}{}. Of "
                           "the ranks that hold a shard exactly one must add it.",
                           num_problems, joined(problems, "; "), num_problems > kMostNamed ? "; ..." : "");
}

}  // namespace megatron
