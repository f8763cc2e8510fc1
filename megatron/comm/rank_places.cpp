#include "megatron/comm/rank_places.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <sstream>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/base/process_identity.h"
#include "megatron/base/word_list.h"
#include "megatron/comm/operation.h"

namespace megatron {

std::string RankPlace::serialize() const {
  return fmt::format("{}\n{}\n{}\n{}", host, host_name, gpu, joined(out_of_reach, " "));
}

RankPlace RankPlace::parse(std::string_view text) {
  std::istringstream lines{std::string(text)};
  RankPlace place;
  std::getline(lines, place.host);
  std::getline(lines, place.host_name);
  std::getline(lines, place.gpu);
  require<CommError>(static_cast<bool>(lines), "[RankPlace] '{}' is not a place", text);
  for (std::string gpu; lines >> gpu;) place.out_of_reach.push_back(gpu);
  return place;
}

std::string host_identity() {
  const std::string id = boot_id();
  return id.empty() ? host_name() : id;
}

RankPlaces RankPlaces::parse(const std::vector<std::string>& texts) {
  std::vector<RankPlace> places;
  places.reserve(texts.size());
  for (const std::string& text : texts) places.push_back(RankPlace::parse(text));
  return RankPlaces(std::move(places));
}

bool RankPlaces::reach(int rank, int other) const {
  const RankPlace &a = places_.at(static_cast<size_t>(rank)), &b = places_.at(static_cast<size_t>(other));
  const auto fails_to_reach = [](const RankPlace& from, const RankPlace& to) {
    return std::ranges::find(from.out_of_reach, to.gpu) != from.out_of_reach.end();
  };
  return a.host == b.host && !fails_to_reach(a, b) && !fails_to_reach(b, a);
}

bool RankPlaces::reach(const std::vector<int>& ranks) const {
  return std::ranges::all_of(
      ranks, [&](int rank) { return std::ranges::all_of(ranks, [&](int other) { return reach(rank, other); }); });
}

void RankPlaces::require_a_gpu_each() const {
  std::map<std::pair<std::string, std::string>, std::vector<int>> ranks_of;
  for (size_t rank = 0; rank < places_.size(); ++rank)
    ranks_of[{places_[rank].host, places_[rank].gpu}].push_back(static_cast<int>(rank));
  for (const auto& [gpu, ranks] : ranks_of)
    require<ConfigError>(
        ranks.size() == 1,
        "Every rank needs a GPU of its own, but {} have the same one: {} of host {}. Local rank r uses GPU r of those "
        "that its process sees, or the only one that it sees. torchrun, mpirun: leave CUDA_VISIBLE_DEVICES out, "
        "or have a script between launcher and program set it to $LOCAL_RANK or $OMPI_COMM_WORLD_LOCAL_RANK. srun: "
        "give "
        "--gpus-per-task 1, or --gpus-per-node as many as the tasks of a node. And start no more ranks on a host than "
        "it has GPUs (--nproc-per-node, --map-by ppr:N:node, --ntasks-per-node).",
        describe_ranks(ranks), gpu.second, places_[static_cast<size_t>(ranks[0])].host_name);
}

}  // namespace megatron
