// --profile: records chosen steps on chosen ranks, and writes one picture of them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "megatron/base/file_system.h"
#include "megatron/base/message_log.h"
#include "megatron/core/profile_recorder.h"
#include "megatron/training/profile/host_op_times.h"
#include "megatron/training/profile/rank_trace_builder.h"
#include "megatron/training/trainer.h"

namespace megatron {

/// One for each rank; all ranks call the same. While no step is recorded nothing is: ops pay one look at a null
/// pointer. Each rank leaves its part in a file beside that of the trace, which rank 0 puts together at the end; so all
/// ranks must see the same files, as for checkpoints.
class TrainingProfile {
 public:
  /// The arguments must outlive it. @param log  rank 0 reports profiles, and each rank reports what has no effect
  TrainingProfile(Trainer& trainer, FileSystem& files, MessageLog log);

  /// Before a step.
  void begin_step();
  /// After it, and after the validation and checkpoint that follow it; outside of all ranges.
  void end_step();
  /// The end of training. Writes what there is, if the last step to record has not come.
  void finish();

 private:
  enum class State { kWaiting, kRecording, kWritten };
  bool is_chosen() const;
  void record_operations();
  void write();
  void merge();
  std::string host_text() const;
  std::string draw_schedule(std::span<const RankTrace> ranks);
  std::string part_path(int64_t rank) const;
  std::vector<int64_t> chosen_ranks() const;

  Trainer& trainer_;
  const ProfilingConfig& config_;
  const FlightRecorder* flights_;  // null on a single rank
  FileSystem& files_;
  MessageLog log_;
  ProfileRecorder recorder_;
  RankTraceBuilder builder_;
  HostOpTimes host_times_;
  State state_ = State::kWaiting;
  int64_t first_step_ = 0, num_steps_ = 0;
  int64_t next_operation_ = 0, num_lost_ = 0;  // of the flight recorder
  std::vector<int64_t> under_way_;             // operations before next_operation_ that had not ended
};

}  // namespace megatron
