// Places of ranks that are not started.
#pragma once

#include <fmt/core.h>

#include <string>
#include <utility>
#include <vector>

#include "megatron/comm/rank_places.h"

namespace megatron::testing {

/// `num_gpus` ranks on each host, whose GPUs reach each other.
inline RankPlaces places_on_hosts_of(int num_ranks, int num_gpus) {
  std::vector<RankPlace> places;
  for (int rank = 0; rank < num_ranks; ++rank) {
    const std::string host = fmt::format("host {}", rank / num_gpus);
    places.push_back({host, host, std::to_string(rank % num_gpus), {}});
  }
  return RankPlaces(std::move(places));
}

}  // namespace megatron::testing
