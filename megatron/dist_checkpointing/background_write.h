// Writes a rank's share of a checkpoint while the rank goes on (--async-save).
#pragma once

#include <atomic>
#include <chrono>
#include <exception>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>

#include "megatron/dist_checkpointing/checkpoint_metadata.h"

namespace megatron {

class CheckpointWriter;

/// How the thread ranks among others of the machine.
struct BackgroundPriority {
  int niceness = 0;             // -20 to 19, see nice(2)
  std::optional<int> io_class;  // 0 none, 1 real time, 2 best effort, 3 idle, see ioprio_set(2)
};

/// One thread for one share whose tensors are staged (CheckpointWriter::stage). It never communicates: what it returns
/// is for the rank's own thread to commit with the others.
class BackgroundWrite {
 public:
  /// @param writer  must outlive this. @param stop  with which the writer's tensors were staged.
  BackgroundWrite(CheckpointWriter& writer, int num_files, const BackgroundPriority& priority, std::stop_source stop);
  /// Stops in the middle of a file where it is not over: what is written then has no meaning.
  ~BackgroundWrite();
  BackgroundWrite(const BackgroundWrite&) = delete;
  BackgroundWrite& operator=(const BackgroundWrite&) = delete;

  /// Says whether everything is on stable storage, or an error has ended it. Does not wait.
  bool is_over() const { return is_over_.load(std::memory_order_acquire); }
  /// Says whether an error has ended it. Does not wait.
  bool has_failed() const { return is_over() && failure_; }
  /// Waits until it is over. @return what is stored. @throw what CheckpointWriter::write throws
  CheckpointMetadata take();
  /// The part of the priority that the system refused; empty if none. Valid after take().
  const std::string& priority_problem() const { return priority_problem_; }

 private:
  void run(CheckpointWriter& writer, int num_files, const BackgroundPriority& priority);

  std::stop_source stop_;
  std::atomic<bool> is_over_ = false;
  CheckpointMetadata stored_;
  std::exception_ptr failure_;
  std::string priority_problem_;
  std::thread thread_;
};

}  // namespace megatron
