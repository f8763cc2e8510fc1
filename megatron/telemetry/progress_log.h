// progress.txt beside the checkpoints (--log-progress): the jobs of a run and their speed, over all restarts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "megatron/base/file_system.h"
#include "megatron/telemetry/timestamp.h"

namespace megatron {

/// Progress of a run at a checkpoint.
struct CheckpointProgress {
  std::int64_t iteration = 0;
  double flops = 0.0;               // floating-point operations of the whole run so far
  double flops_at_job_start = 0.0;  // of these, done before this job
  double job_seconds = 0.0;         // since this job began to train
  double tokens = 0.0;              // of the whole run so far
};

/// Appends to <directory>/progress.txt. One rank of the job owns it. Lines are those of Megatron-LM and are also read
/// back: the cumulative throughput counts from the first job in a row that had the same number of GPUs.
class ProgressLog {
 public:
  /// @param files  must outlive the log. @param job_id  of the cluster's scheduler, "" without one.
  ProgressLog(FileSystem& files, std::string_view directory, std::string job_id, int world_size);

  void job_started(WallTime now);
  /// A checkpoint that is complete on disk.
  void checkpoint_saved(WallTime now, const CheckpointProgress& progress);
  /// A checkpoint that is written in the background, and its completion.
  void async_save_started(WallTime now, const CheckpointProgress& progress);
  void async_save_finished(WallTime now, std::int64_t iteration);
  void checkpoint_deleted(WallTime now, std::int64_t iteration);

 private:
  void append(WallTime now, std::string_view message);
  void append_save(WallTime now, std::string_view heading, const CheckpointProgress& progress);

  FileSystem& files_;
  std::string path_;
  std::string job_id_;
  int world_size_;
};

/// The start of the cumulative throughput.
struct JobStart {
  WallTime time;
  double flops = 0.0;
};

/// @param text  content of a progress.txt.
/// @return nothing if no job of that size has started since another size was used. Lines of another form, such as one
/// that a crash has cut off, are skipped: this file must never stop a run.
std::optional<JobStart> find_job_start(std::string_view text, int world_size);

}  // namespace megatron
