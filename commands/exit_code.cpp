#include "commands/exit_code.h"

#include <exception>
#include <new>
#include <ostream>

#include "megatron/base/error.h"
#include "megatron/comm/rank_failure.h"

namespace megatron {
namespace {

ExitCode code_of(const std::exception& error) {
  if (const auto* failure = dynamic_cast<const RankFailure*>(&error)) {
    try {
      std::rethrow_exception(failure->cause);
    } catch (const std::exception& cause) {
      return code_of(cause);
    } catch (...) {
      return ExitCode::kFailure;
    }
  }
  if (dynamic_cast<const ConfigError*>(&error) || dynamic_cast<const NotSupported*>(&error)) return ExitCode::kUsage;
  if (dynamic_cast<const DataError*>(&error)) return ExitCode::kData;
  if (dynamic_cast<const CheckpointError*>(&error)) return ExitCode::kCheckpoint;
  if (dynamic_cast<const OutOfMemory*>(&error)) return ExitCode::kOutOfMemory;
  if (dynamic_cast<const std::bad_alloc*>(&error)) return ExitCode::kOutOfMemory;
  if (dynamic_cast<const IoError*>(&error)) return ExitCode::kIo;
  if (dynamic_cast<const CommError*>(&error)) return ExitCode::kCommunication;
  return ExitCode::kFailure;
}

}  // namespace

int run_command(std::string_view command, std::ostream& err, const std::function<void()>& body) {
  const auto fail = [&](ExitCode code, std::string_view text) {
    // In one piece: other processes of the job may write to the same terminal.
    err << fmt::format("megatron {}: {}\n", command, text) << std::flush;
    return static_cast<int>(code);
  };
  try {
    body();
    return static_cast<int>(ExitCode::kSuccess);
  } catch (const std::bad_alloc&) {
    return fail(ExitCode::kOutOfMemory, "the host has no memory left for the program's own tables.");
  } catch (const std::exception& error) {
    return fail(code_of(error), error.what());
  }
}

}  // namespace megatron
