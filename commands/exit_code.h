// Exit codes of the program, and the one place where exceptions become them.
#pragma once

#include <exception>
#include <functional>
#include <iosfwd>
#include <string>
#include <string_view>

#include "megatron/base/error.h"

namespace megatron {

/// Documented in docs/launching.md; scripts may rely on them.
enum class ExitCode : int {
  kSuccess = 0,
  kFailure = 1,        // anything else: a loss that is not finite, a fault of the program or of the machine
  kUsage = 2,          // a flag, or a combination of flags, is wrong or not supported
  kData = 3,           // a data file or a tokenizer file is missing, damaged or does not fit
  kCheckpoint = 4,     // a checkpoint is missing, damaged or does not fit, or another run uses the folder of --save
  kOutOfMemory = 5,    // an arena is full, or the system has no memory or threads left; the text has remedies
  kIo = 6,             // a file operation failed: full or read-only disk, permissions
  kCommunication = 7,  // ranks did not connect, one was lost or late, or ranks called different operations
  kResumeToDisambiguate = 16,      // a rejected step gave the same result twice: restart on another host (--rerun-mode)
  kFailedOnResultValidation = 17,  // the cause of a rejected step is known: the text names it
};

/// The exit code for an error; for a failed rank, that of its cause.
ExitCode exit_code_of(const std::exception& error);

/// The text of an error; a list of mistakes in one line.
std::string reason_of(const Error& error);

/// Prints "megatron <command>: <text>" in one write: other processes of the job may use the same terminal.
void print_error(std::string_view command, std::string_view text, std::ostream& err);

/// Runs a command. Prints its exception to `err`, unless it is the failure of a rank that has been reported.
/// @return the exit status of the process.
int run_command(std::string_view command, std::ostream& err, const std::function<void()>& body);

}  // namespace megatron
