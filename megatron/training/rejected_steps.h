// What rejected steps leave behind in files, for the runs that come after.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "megatron/base/file_system.h"
#include "megatron/training/rerun_state_machine.h"

namespace megatron {

/// The file in the folder of checkpoints.
std::string rejected_step_path(const std::string& save);
/// Written by one rank. @throw IoError
void write_rejected_step(FileSystem& files, const std::string& path, const RejectedStep& step);
/// The text of a file that write_rejected_step() wrote; nothing for an empty text. @param path  for messages
/// @throw CheckpointError for another text
std::optional<RejectedStep> parse_rejected_step(const std::string& text, const std::string& path);

/// Iterations, one a line, as --result-rejected-tracker-filename has them. @throw DataError
std::vector<int64_t> parse_rejected_iterations(const std::string& text, const std::string& path);
/// Adds a line to that file. @throw IoError
void append_rejected_iteration(FileSystem& files, const std::string& path, int64_t iteration);

}  // namespace megatron
