#include "megatron/comm/nccl/lanes_in_flight.h"

#include "megatron/comm/nccl/nccl_lane.h"

namespace megatron {

std::vector<const FlightQueue*> LanesInFlight::queues() const {
  std::vector<const FlightQueue*> queues{&graphs};
  for (const NcclLane* lane : lanes) queues.push_back(&lane->queue_);
  return queues;
}

void LanesInFlight::launched(FlightQueue& queue) {
  {
    const std::lock_guard lock(mutex);
    queue.note_launch();
  }
  changed.notify_all();
}

void LanesInFlight::wake_waiting() {
  { const std::lock_guard lock(mutex); }
  changed.notify_all();
}

}  // namespace megatron
