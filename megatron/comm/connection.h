// The connections of a group.
#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>
#include <map>
#include <string>

#include "megatron/comm/group_traits.h"
#include "megatron/comm/operation.h"

namespace megatron {

/// The collectives of a group, or the sends of one tag from one of its ranks to another.
struct Connection {
  std::string group;  // its name
  /// For sends: ranks of the group, and the tag. -1: collectives.
  int sender = -1, receiver = -1, tag = -1;

  bool is_channel() const { return tag >= 0; }
  auto operator<=>(const Connection&) const = default;
};

/// All operations of one kind on a connection.
struct Traffic {
  int64_t num_operations = 0;
  int64_t bytes = 0;  // of the larger operand of each
};

/// The traffic of a connection.
struct ConnectionUse {
  GroupTraits traits;   // of the group
  int64_t largest = 0;  // bytes of the largest message, or of the largest section that collectives gather or scatter
  std::map<CommOp, Traffic> operations;  // by kind

  /// An all-to-all needs a connection between each two ranks, other collectives connect neighbours alone.
  bool connects_pairs() const { return operations.contains(CommOp::kAllToAll); }
  /// Says whether collectives gather or scatter rows by copy engine, where the GPUs reach each other.
  bool copies_rows() const { return traits.by_copy_engine && largest > 0; }
};
using Connections = std::map<Connection, ConnectionUse>;

/// An operation that uses a connection. @param bytes  of its larger operand. @param section  see ConnectionUse::largest
inline void note(Connections& connections, const Connection& used, const GroupTraits& traits, CommOp op, int64_t bytes,
                 int64_t section) {
  ConnectionUse& use = connections[used];
  use.traits = traits;
  use.largest = std::max(use.largest, section);
  Traffic& traffic = use.operations[op];
  ++traffic.num_operations;
  traffic.bytes += bytes;
}

}  // namespace megatron
