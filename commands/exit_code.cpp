#include "commands/exit_code.h"

#include <exception>
#include <new>
#include <ostream>

#include "megatron/comm/rank_failure.h"
#include "megatron/training/rejected_result.h"

namespace megatron {
namespace {

ExitCode exit_code_of(RejectedResult::Verdict verdict) {
  switch (verdict) {
    case RejectedResult::Verdict::kRestartToTellApart:
      return ExitCode::kResumeToDisambiguate;
    case RejectedResult::Verdict::kFailed:
      return ExitCode::kFailedOnResultValidation;
    case RejectedResult::Verdict::kStop:
      break;
  }
  return ExitCode::kFailure;
}

}  // namespace

ExitCode exit_code_of(const std::exception& error) {
  if (const auto* failure = dynamic_cast<const RankFailure*>(&error)) {
    try {
      std::rethrow_exception(failure->cause);
    } catch (const std::exception& cause) {
      return exit_code_of(cause);
    } catch (...) {
      return ExitCode::kFailure;
    }
  }
  if (const auto* rejected = dynamic_cast<const RejectedResult*>(&error)) return exit_code_of(rejected->verdict);
  if (dynamic_cast<const ConfigError*>(&error) || dynamic_cast<const NotSupported*>(&error)) return ExitCode::kUsage;
  if (dynamic_cast<const DataError*>(&error)) return ExitCode::kData;
  if (dynamic_cast<const CheckpointError*>(&error)) return ExitCode::kCheckpoint;
  if (dynamic_cast<const OutOfMemory*>(&error)) return ExitCode::kOutOfMemory;
  if (dynamic_cast<const std::bad_alloc*>(&error)) return ExitCode::kOutOfMemory;
  if (dynamic_cast<const IoError*>(&error)) return ExitCode::kIo;
  if (dynamic_cast<const CommError*>(&error)) return ExitCode::kCommunication;
  return ExitCode::kFailure;
}

std::string reason_of(const Error& error) {
  std::string text = error.what();
  for (int number = 1;; ++number) {
    const std::string mark = fmt::format("\n  {}. ", number);
    const size_t found = text.find(mark);
    if (found == std::string::npos) return text;
    if (number == 1)
      text.erase(0, found + mark.size());
    else
      text.replace(found, mark.size(), "; ");
  }
}

void print_error(std::string_view command, std::string_view text, std::ostream& err) {
  err << fmt::format("megatron {}: {}\n", command, text) << std::flush;
}

int run_command(std::string_view command, std::ostream& err, const std::function<void()>& body) {
  const auto fail = [&](ExitCode code, std::string_view text) {
    print_error(command, text, err);
    return static_cast<int>(code);
  };
  try {
    body();
    return static_cast<int>(ExitCode::kSuccess);
  } catch (const std::bad_alloc&) {
    return fail(ExitCode::kOutOfMemory, "the host has no memory left for the program's own tables.");
  } catch (const RankFailure& failure) {
    if (failure.is_reported) return static_cast<int>(exit_code_of(failure));
    return fail(exit_code_of(failure), failure.what());
  } catch (const std::exception& error) {
    return fail(exit_code_of(error), error.what());
  }
}

}  // namespace megatron
