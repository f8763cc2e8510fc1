// Operations in which ranks wait, and the rank that blocks the others.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/comm/flight_recorder.h"

namespace megatron {

/// An operation in which ranks wait because others have not entered it. Global ranks.
struct BlockedOperation {
  std::string text;
  std::vector<int> waiting, missing;
};

/// The text of a timeout of `blocked`: the missing ranks and, by following the chain through `all` operations in which
/// ranks wait, the rank that blocks the others. @param describe_rank text for a rank that waits in no operation
std::string explain_timeout(const BlockedOperation& blocked, std::chrono::milliseconds timeout,
                            const std::vector<BlockedOperation>& all,
                            const std::function<std::string(int rank)>& describe_rank);

/// The text about an operation that `rank` drops. @param is_unwinding whether an exception ends its owner there,
/// which the other ranks do not know yet
std::string explain_drop(int rank, std::string_view operation, const std::vector<int>& missing, bool is_unwinding);

/// " Rank 3 waits in no operation; its last was barrier #0 "start" of world, 1.0 s ago."
std::string describe_idle_rank(int rank, const FlightRecorder& recorder);

}  // namespace megatron
