#include "megatron/comm/nccl/flight_queue.h"

#include "megatron/comm/flight_recorder.h"

namespace megatron {

using Clock = std::chrono::steady_clock;

void FlightQueue::add(NcclFlightPtr flight) {
  ++num_issued_;
  flying_.push_back(std::move(flight));
}

void FlightQueue::note_ends() {
  const auto now = Clock::now();
  while (!flying_.empty() && is_launched(*flying_.front())) {
    const NcclFlight& first = *flying_.front();
    if (!started_ && first.has_started()) started_ = now;
    if (!first.has_ended()) return;
    const OperationInfo& info = first.info();
    if (info.recorder) info.recorder->ended(info.record, started_.value_or(now), now);
    started_.reset();
    flying_.pop_front();
  }
}

NcclFlightPtr FlightQueue::late() const {
  if (flying_.empty()) return nullptr;
  const NcclFlightPtr& first = flying_.front();
  if (is_launched(*first) && !started_) return nullptr;  // waits for this rank's own kernels
  const auto begin = is_launched(*first) ? *started_ : first->enqueued();
  return Clock::now() - begin > first->info().timeout ? first : nullptr;
}

const NcclFlight* FlightQueue::blocked() const {
  if (flying_.empty() || (is_launched(*flying_.front()) && !started_)) return nullptr;
  return flying_.front().get();
}

}  // namespace megatron
