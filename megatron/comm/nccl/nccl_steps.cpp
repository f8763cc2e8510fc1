#include "megatron/comm/nccl/nccl_steps.h"

#include <memory>
#include <numeric>
#include <vector>

#include "megatron/comm/world.h"

namespace megatron {

void NcclSteps::begin_graph_step(std::string_view site, std::string_view change) {
  graph_steps_.begin(site, change, flights_.world->timeout());
}

/// The watchdog cannot see into a graph: the whole graph counts as one operation of all ranks.
void NcclSteps::launch_graph(const NcclFlight::Resources& resources, std::string_view site,
                             const std::function<void()>& launch) {
  meeting_.throw_if_failed();
  std::vector<int> members(static_cast<size_t>(meeting_.size()));
  std::iota(members.begin(), members.end(), 0);
  FlightQueue& graphs = flights_.graphs;
  const int64_t number = graphs.num_issued();
  const auto flight =
      std::make_shared<NcclFlight>(resources, fmt::format("launch #{} of a CUDA graph \"{}\"", number, site),
                                   flights_.world->timeout(), LanePlace{graphs.name(), number, members});
  {  // Before the launch, in which the host may wait for space in the GPU's queue, and so for other ranks.
    const std::lock_guard lock(flights_.mutex);
    graphs.add(flight);
  }
  try {
    flight->launch_graph(launch);
  } catch (const Error& error) {
    meeting_.fail(fmt::format("{} failed on rank {}: {}", flight->to_string(), meeting_.rank(), error.what()));
    meeting_.throw_if_failed();
  }
  flights_.launched(graphs);
}

}  // namespace megatron
