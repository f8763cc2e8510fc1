// Operations in flight, as the watchdog sees them.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <utility>

#include "megatron/comm/nccl/nccl_flight.h"

namespace megatron {

/// Operations that the same ranks issue, start and end in the same order. Guarded by the hub's mutex.
class FlightQueue {
 public:
  explicit FlightQueue(std::string name) : name_(std::move(name)) {}

  /// The same on all ranks.
  const std::string& name() const { return name_; }
  int64_t num_issued() const { return num_issued_; }
  /// The next operation, with the number num_issued().
  void add(NcclFlightPtr flight);
  /// The first operation that was not launched has been given to its stream.
  void note_launch() { ++num_launched_; }
  bool is_launched(const NcclFlight& flight) const { return num_launched_ > flight.place().index; }
  bool is_empty() const { return flying_.empty(); }

  /// Polls the GPU, updates the recorder and removes ended operations. @throw CommError see NcclFlight::has_ended
  void note_ends();
  /// The first operation, if it has exceeded its timeout; else null. After note_ends().
  NcclFlightPtr late() const;
  /// The operation in which this rank waits for others; null: in none that is known.
  const NcclFlight* blocked() const;

 private:
  std::string name_;
  int64_t num_issued_ = 0, num_launched_ = 0;
  std::deque<NcclFlightPtr> flying_;         // not known to have ended, in their order
  std::optional<NcclFlight::Time> started_;  // of the first of them
};

}  // namespace megatron
