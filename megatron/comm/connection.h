// What ranks of a group connect for before they can use it.
#pragma once

#include <compare>
#include <set>
#include <string>

namespace megatron {

/// The collectives of a group, or the messages of one tag from one of its ranks to another.
struct Connection {
  std::string group;  // its name
  /// Of messages: ranks of the group, and their tag. -1: collectives.
  int sender = -1, receiver = -1, tag = -1;
  auto operator<=>(const Connection&) const = default;
};
using Connections = std::set<Connection>;

}  // namespace megatron
