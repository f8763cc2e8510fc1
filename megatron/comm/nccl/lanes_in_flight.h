// The lanes of a process and its launches of CUDA graphs, as the parts of NcclHub share them.
#pragma once

#include <condition_variable>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "megatron/comm/nccl/flight_queue.h"
#include "megatron/comm/nccl/rank_report.h"

namespace megatron {

class NcclLane;
class World;

/// The mutex guards the other members, and the state of the lanes. Waits on `changed` end when a lane connects, an
/// operation is launched, or a rank fails.
struct LanesInFlight {
  mutable std::mutex mutex;
  std::condition_variable changed;
  std::set<NcclLane*> lanes;
  FlightQueue graphs{std::string(kGraphLaunches)};  // one after the other on the compute stream
  const World* world = nullptr;

  /// The queues of the graphs and of all lanes. Call it with the mutex held.
  std::vector<const FlightQueue*> queues() const;
  void launched(FlightQueue& queue);
  /// Wakes all waiting threads. It takes the lock before, so that a thread that has checked for a failure waits
  /// already.
  void wake_waiting();
};

}  // namespace megatron
