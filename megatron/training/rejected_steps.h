// Files in which rejected steps are recorded for later runs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "megatron/base/file_system.h"
#include "megatron/comm/process_group.h"
#include "megatron/training/rerun_state_machine.h"

namespace megatron {

/// The file in the folder of checkpoints.
std::string rejected_step_path(const std::string& save);
/// Written by one rank. @throw IoError
void write_rejected_step(FileSystem& files, const std::string& path, const RejectedStep& step);
/// The text of a file that write_rejected_step() wrote; nothing for an empty text. @param path  for messages
/// @throw CheckpointError for another text
std::optional<RejectedStep> parse_rejected_step(const std::string& text, const std::string& path);

/// The step that an earlier run has rejected, by the file that it left in the folder of checkpoints. All ranks have
/// one; rank 0 alone reads and removes the file.
class EarlierRejectedStep {
 public:
  /// @param load  of the run; null: there is no such step. @throw CheckpointError if the file is damaged
  EarlierRejectedStep(FileSystem& files, const std::string* load, const ProcessGroup& world);

  /// The step, if a run that begins with this iteration can compute it from the same state: no other run can tell why
  /// it was rejected.
  std::optional<RejectedStep> at_start(int64_t iteration) const;
  /// Empty unless the file is there and of an iteration that comes later: a run that begins here does not compare it.
  std::string note_at_start(int64_t iteration) const;
  /// Removes the file if it is of this iteration or of one before: it has been taken, left out or judged.
  void pass(int64_t iteration);
  const std::string& path() const { return path_; }

 private:
  FileSystem& files_;
  std::string path_;
  bool removes_;
  std::optional<RejectedStep> step_;
};

/// Iterations, one a line, as --result-rejected-tracker-filename has them. @throw DataError
std::vector<int64_t> parse_rejected_iterations(const std::string& text, const std::string& path);
/// Adds a line to that file. @throw IoError
void append_rejected_iteration(FileSystem& files, const std::string& path, int64_t iteration);

}  // namespace megatron
