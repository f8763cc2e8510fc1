// The watchdog of a process's in-flight operations.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <stop_token>
#include <thread>

#include "megatron/comm/nccl/graph_steps.h"
#include "megatron/comm/nccl/lanes_in_flight.h"
#include "megatron/comm/nccl/nccl_flight.h"
#include "megatron/comm/nccl/rank_report.h"
#include "megatron/comm/nccl/store_meeting.h"

namespace megatron {

/// A thread that notes when operations start and end, finds those that exceed their timeout, receives failures through
/// the store, and answers queries about the operation in which this rank waits. After a failure it aborts all
/// communicators, so that neither a stream nor a thread hangs in them.
class NcclWatchdog {
 public:
  /// Time for streams to drain after an abort.
  static constexpr std::chrono::milliseconds kDrainTime{1000};

  /// Refers to its arguments. start() begins the thread.
  NcclWatchdog(StoreMeeting& meeting, LanesInFlight& flights, const GraphSteps& graph_steps)
      : meeting_(meeting), flights_(flights), graph_steps_(graph_steps) {}
  ~NcclWatchdog();
  NcclWatchdog(const NcclWatchdog&) = delete;
  NcclWatchdog& operator=(const NcclWatchdog&) = delete;

  /// @param use_device  makes the GPU that of the calling thread
  void start(std::function<void()> use_device);
  /// Queries the state of all ranks. @return the reports of those that answered in time
  std::map<int, RankReport> ask_all();

 private:
  void watch(const std::stop_token& stop);
  /// An operation that has exceeded its timeout, or null.
  NcclFlightPtr look_at_flights();
  void handle_updates();
  void answer(int64_t query);
  RankReport report() const;
  void time_out(const NcclFlight& flight);
  void abort_all();

  StoreMeeting& meeting_;
  LanesInFlight& flights_;
  const GraphSteps& graph_steps_;
  std::function<void()> use_device_;
  int64_t num_answered_ = 0;  // used by the watchdog only
  std::jthread thread_;
};

}  // namespace megatron
