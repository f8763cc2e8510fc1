// Operations that ranks wait in, and who of them holds up the others.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/comm/flight_recorder.h"

namespace megatron {

/// An operation that ranks wait in because others have not entered it. Global ranks.
struct BlockedOperation {
  std::string text;
  std::vector<int> waiting, missing;
};

/// The text of a timeout of `blocked`: who is missing, and by following the chain through `all` operations in which
/// ranks wait, which rank holds up the others. @param describe_rank text on a rank that waits in no operation
std::string explain_timeout(const BlockedOperation& blocked, std::chrono::milliseconds timeout,
                            const std::vector<BlockedOperation>& all,
                            const std::function<std::string(int rank)>& describe_rank);

/// The text about an operation that `rank` gives up. @param is_unwinding because an exception ends its owner there,
/// which the others know nothing of yet
std::string explain_drop(int rank, std::string_view operation, const std::vector<int>& missing, bool is_unwinding);

/// " Rank 3 waits in no operation; its last was barrier #0 "start" of world, 1.0 s ago."
std::string describe_idle_rank(int rank, const FlightRecorder& recorder);

}  // namespace megatron
