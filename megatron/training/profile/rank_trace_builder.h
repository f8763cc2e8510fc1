// Turns what one rank has recorded into its part of a trace.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "megatron/comm/flight_recorder.h"
#include "megatron/core/profile_recorder.h"
#include "megatron/telemetry/trace.h"
#include "megatron/training/profile/step_times.h"

namespace megatron {

/// Threads of the picture: host (phases of the step, actions of the pipeline schedule, waits for other ranks), schedule
/// (those actions that compute, as long as the device is at them), compute (ops, and on a device what it waits for
/// between them), and as many for each process group as have operations under way at once.
class RankTraceBuilder {
 public:
  /// @param has_device  ops run apart from the host: then the host's thread shows their launches, and waiting for
  /// communication does not stop the host.
  RankTraceBuilder(int rank, std::string name, bool has_device);

  /// Adds the records of one step. @param iteration  number of the step, from 1.
  void add(int64_t iteration, const ProfileRecorder::Records& records);
  /// One that has ended; in order.
  void add(const OperationRecord& operation);

  /// All of it, with the times of the steps as totals.
  RankTrace finish();

 private:
  struct Exchange {
    TraceEvent event;
    std::string group;
  };
  void add_op(const OpRecord& op);
  void add_range(const RangeRecord& range, int64_t iteration, std::span<const OpRecord> ops);
  void add_action(TraceEvent event, const RangeRecord& range, std::span<const OpRecord> ops);
  void add_waits();
  void add_device_waits();
  void add_exchanges();
  void add_totals();

  bool has_device_;
  RankTrace trace_;
  std::vector<OpRecord> ops_;
  std::vector<TimeSpan> steps_;
  std::vector<TraceEvent> waits_;  // of the host, or what it made the device wait for
  std::vector<Exchange> exchanges_;
};

}  // namespace megatron
