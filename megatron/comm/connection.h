// What ranks of a group connect for before they can use it.
#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>
#include <map>
#include <string>

namespace megatron {

/// The collectives of a group, or the messages of one tag from one of its ranks to another.
struct Connection {
  std::string group;  // its name
  /// Of messages: ranks of the group, and their tag. -1: collectives.
  int sender = -1, receiver = -1, tag = -1;
  auto operator<=>(const Connection&) const = default;
};
/// With the bytes of the largest message, or of the largest section that collectives gather or scatter. 0: none.
using Connections = std::map<Connection, int64_t>;

inline void note(Connections& connections, const Connection& used, int64_t bytes) {
  int64_t& largest = connections[used];
  largest = std::max(largest, bytes);
}

}  // namespace megatron
