#include "megatron/training/checkpoint/target_ranks.h"

#include <algorithm>
#include <set>

#include "megatron/base/error.h"
#include "megatron/base/word_list.h"
#include "megatron/dist_checkpointing/stored_box_source.h"

namespace megatron {
namespace {

constexpr std::string_view kStates = "optimizer.state.";

}  // namespace

TargetRanks::Model model_tensors(const CheckpointMetadata& metadata) {
  TargetRanks::Model model;
  for (const auto& [key, tensor] : metadata.tensors)
    if (key.find("optimizer.") == std::string::npos) model.emplace(key, GlobalTensor{tensor.type, tensor.shape, {}});
  return model;
}

std::map<std::string, std::vector<std::string>> optimizer_states_of(const CheckpointReader& reader) {
  std::map<std::string, std::vector<std::string>> states;
  for (const auto& [key, tensor] : reader.whole_tensors().tensors) {
    if (!key.starts_with(kStates)) continue;
    const size_t name_end = key.find('.', kStates.size());
    states[key.substr(name_end + 1)].push_back(key.substr(kStates.size(), name_end - kStates.size()));
  }
  return states;
}

TargetRanks::TargetRanks(FileSystem& files, std::string directory, Integrity integrity, const CheckpointReader& reader,
                         const TargetLayout& layout, std::function<void(int64_t)> on_bytes)
    : reader_(reader),
      layout_(layout),
      on_bytes_(std::move(on_bytes)),
      model_(model_tensors(reader.metadata())),
      states_(optimizer_states_of(reader)),
      bytes_(static_cast<size_t>(layout.world_size())) {
  for (int64_t rank = 0; rank < layout.world_size(); ++rank)
    writers_.emplace_back(files, directory, static_cast<int>(rank), integrity);
}

std::vector<TargetRanks::Holders> TargetRanks::holders() const {
  std::vector<Holders> all;
  const ModelDivision& division = layout_.division;
  const int64_t num_ranks = layout_.ranks_of_stage();
  const auto add = [&](int64_t stage, bool of_experts, int64_t period) {
    for (int64_t first = 0; first < period; ++first) {
      Holders& own = all.emplace_back();
      own.stage = stage;
      own.rank = layout_.rank_of_stage(first);
      own.of_experts = of_experts;
      for (int64_t rank = first; rank < num_ranks; rank += period) own.ranks.push_back(stage * num_ranks + rank);
    }
  };
  for (int64_t stage = 0; stage < division.pipeline; ++stage) add(stage, false, division.tensor);
  if (separates_experts())
    for (int64_t stage = 0; stage < division.pipeline; ++stage)
      add(stage, true, division.expert * division.expert_tensor);
  return all;
}

int64_t TargetRanks::next_of(const Holders& holders, int64_t bytes) {
  const int64_t rank =
      *std::ranges::min_element(holders.ranks, {}, [&](int64_t one) { return bytes_[static_cast<size_t>(one)]; });
  bytes_[static_cast<size_t>(rank)] += bytes;
  return rank;
}

void TargetRanks::add(const Holders& holders, const std::string& key, const GlobalTensor& whole, const Box& box,
                      const std::string& source_key, const Box& source_box) {
  const int64_t rank = next_of(holders, box.sizes.num_elements() * size_of(whole.type));
  writer(rank).add_tensor(
      key, whole.type, whole.shape, box,
      std::make_unique<StoredBoxSource>(reader_, source_key, std::vector<Box>{source_box}, on_bytes_));
}

void TargetRanks::add_whole_tensors(bool with_optimizer) {
  std::set<std::string_view> left;
  for (const auto& [key, tensor] : model_) left.insert(key);
  for (const Holders& own : holders())
    for (int64_t chunk = 0; chunk < layout_.division.chunks; ++chunk)
      for (const RankTensor& tensor :
           tensors_of_rank(model_, layout_.division, layout_.part(own.stage, chunk), own.rank, RankContents::kAll)) {
        if (tensor.is_copy || (separates_experts() && tensor.expert.has_value() != own.of_experts)) continue;
        const GlobalTensor& whole = model_.find(tensor.key)->second;
        left.erase(tensor.key);
        for (const RankTensor::Part& part : tensor.parts)
          add(own, tensor.key, whole, part.whole, tensor.key, part.whole);
        const auto states = states_.find(tensor.key);
        if (!with_optimizer || states == states_.end()) continue;
        for (const std::string& name : states->second) {
          const std::string key = std::string(kStates) + name + "." + tensor.key;
          const GlobalTensor& state = reader_.whole_tensors().tensors.find(key)->second;
          require<CheckpointError>(state.shape == whole.shape, "[checkpoint] {} is {}, its parameter is {}.", key,
                                   state.shape, whole.shape);
          for (const RankTensor::Part& part : tensor.parts)
            add(own, key, {state.type, state.shape, {}}, part.whole, key, part.whole);
        }
      }
  require<CheckpointError>(left.empty(), "[checkpoint] {}: no rank of the new layout holds {}.", reader_.directory(),
                           joined(std::vector<std::string>(left.begin(), left.end()), ", "));
}

int64_t TargetRanks::estimated_bytes() const {
  int64_t bytes = 0;
  for (const CheckpointWriter& writer : writers_) bytes += writer.estimated_bytes();
  return bytes;
}

int64_t TargetRanks::tensor_bytes() const {
  int64_t bytes = 0;
  for (const CheckpointWriter& writer : writers_) bytes += writer.tensor_bytes();
  return bytes;
}

CheckpointMetadata TargetRanks::write(FileHashes& hashes) {
  CheckpointMetadata all;
  for (CheckpointWriter& writer : writers_) {
    all.merge(writer.write(1, WriteThreads::kCallerAlone));
    hashes.insert(writer.hashes().begin(), writer.hashes().end());
  }
  return all;
}

}  // namespace megatron
