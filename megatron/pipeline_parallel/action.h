// A schedule is data: what one rank does in one step, in order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace megatron {

/// F forward, B gradient of the inputs, W that of the weights, BW both at once; the rest moves what crosses the border
/// between two neighbouring virtual stages. Send and receive name the chunk of the rank that acts.
enum class ActionKind { kF, kB, kW, kBW, kSendForward, kRecvForward, kSendBackward, kRecvBackward };
std::string_view name_of(ActionKind kind);

/// Chunk c of pipeline rank r is virtual stage c * num_ranks + r (Megatron's numbering). F, B, W and BW may address a
/// range of the chunk's segments.
struct Action {
  ActionKind kind;
  int chunk = 0;
  int micro_batch = 0;
  size_t first_segment = 0;
  size_t end_segment = std::numeric_limits<size_t>::max();
  bool operator==(const Action&) const = default;
};
using Schedule = std::vector<Action>;  // of one rank

/// "F0.2 B1.0": kind, chunk, micro-batch; for messages and tests.
std::string to_string(const Schedule& schedule);

}  // namespace megatron
