// A schedule is data: what one rank does in one step, in order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace megatron {

/// F forward, B gradient of the inputs, W that of the weights, BW both at once; the others move tensors across the
/// border between two virtual stages on different ranks. Send and receive name the chunk of the rank that acts. A send
/// does not wait for its receiver; a receive only posts the buffer, and the F or B that needs the data waits for it.
enum class ActionKind { kF, kB, kW, kBW, kSendForward, kRecvForward, kSendBackward, kRecvBackward };
std::string_view name_of(ActionKind kind);
/// F, B, W or BW.
constexpr bool is_compute(ActionKind kind) { return kind <= ActionKind::kBW; }

/// kFused: weight gradients with the input gradients. kSplit: W apart from B, so that the neighbour does not wait for
/// it.
enum class WeightGradient { kFused, kSplit };

/// F, B, W and BW may address a range of the chunk's segments.
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
