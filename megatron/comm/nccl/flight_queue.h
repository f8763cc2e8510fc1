// Operations under way, as the watch over them sees them.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <utility>

#include "megatron/comm/nccl/nccl_flight.h"

namespace megatron {

/// Those that the same ranks issue in one order; they start and end in it. Guarded by the hub's mutex.
class FlightQueue {
 public:
  explicit FlightQueue(std::string name) : name_(std::move(name)) {}

  /// The same on all ranks.
  const std::string& name() const { return name_; }
  int64_t num_issued() const { return num_issued_; }
  /// The next one, whose place has the number num_issued().
  void add(NcclFlightPtr flight);
  /// The first that was not has been given to its stream.
  void note_launch() { ++num_launched_; }
  bool is_launched(const NcclFlight& flight) const { return num_launched_ > flight.place().index; }
  bool is_empty() const { return flying_.empty(); }

  /// Looks at the GPU, tells the recorder and forgets what has ended. @throw CommError see NcclFlight::has_ended
  void note_ends();
  /// The first one, if it has lasted longer than it may; else null. After note_ends().
  NcclFlightPtr late() const;
  /// That in which this rank waits for others; null: in none that is known of.
  const NcclFlight* blocked() const;

 private:
  std::string name_;
  int64_t num_issued_ = 0, num_launched_ = 0;
  std::deque<NcclFlightPtr> flying_;         // not known to have ended, in their order
  std::optional<NcclFlight::Time> started_;  // of the first of them
};

}  // namespace megatron
