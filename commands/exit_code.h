// Exit codes of the program, and the one place where exceptions become them.
#pragma once

#include <exception>
#include <functional>
#include <iosfwd>
#include <string>
#include <string_view>

#include "megatron/base/error.h"

namespace megatron {

/// Documented in README.md; scripts may rely on them.
enum class ExitCode : int {
  kSuccess = 0,
  kFailure = 1,        // anything else: a loss that is not finite, a fault of the program or of the machine
  kUsage = 2,          // a flag, or a combination of flags, is wrong or not supported
  kData = 3,           // a data file or a tokenizer file is missing, damaged or does not fit
  kCheckpoint = 4,     // a checkpoint is missing, damaged or does not fit, or another run has the folder of --save
  kOutOfMemory = 5,    // an arena is full, or the system refuses memory or threads; the remedies are in the text
  kIo = 6,             // the operating system refused a file operation: full or read-only disk, permissions
  kCommunication = 7,  // ranks did not come together: one was lost, came too late, or did something else
  kResumeToDisambiguate = 16,      // a rejected step was the same twice: start again, on another host (--rerun-mode)
  kFailedOnResultValidation = 17,  // why a step was rejected is told apart: the text says where the fault is
};

/// That of a failed rank is that of its cause.
ExitCode exit_code_of(const std::exception& error);

/// What an error says, a list of mistakes in one line.
std::string reason_of(const Error& error);

/// Prints "megatron <command>: <text>" in one piece: other processes of the job may write to the same terminal.
void print_error(std::string_view command, std::string_view text, std::ostream& err);

/// Runs a command. What it throws is printed to `err`, unless it is the failure of a rank that has been reported.
/// @return the exit status of the process.
int run_command(std::string_view command, std::ostream& err, const std::function<void()>& body);

}  // namespace megatron
