// How the operations of a group travel.
#pragma once

namespace megatron {

/// Properties of a group of ranks that belong to its purpose, not to its backend. World::split is given them, and
/// whoever plans or carries the group's operations goes by them.
struct GroupTraits {
  /// Rows that collectives gather or scatter, and point-to-point messages, are copied between GPUs that reach each
  /// other's memory instead of going by NCCL (CopiedGroups).
  bool by_copy_engine = false;
  /// Ranks use all-to-all: backends that cannot connect inside a training step connect each pair of ranks with the
  /// group.
  bool pairwise = false;

  bool operator==(const GroupTraits&) const = default;
};

}  // namespace megatron
