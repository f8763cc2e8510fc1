// The process groups that a model, its optimizer and its checkpoints need: handed down in place of global state.
#pragma once

#include <optional>
#include <vector>

#include "megatron/comm/parallel_layout.h"
#include "megatron/comm/process_group.h"
#include "megatron/comm/world.h"
#include "megatron/core/shard_spec.h"

namespace megatron {

/// Megatron Core's name and fields. GroupKind says which ranks a group has. A value of handles; valid as long as the
/// World. A default one is a single rank.
struct ProcessGroupCollection {
  static ProcessGroupCollection single() { return {}; }
  /// Makes all groups of the layout; all ranks call it. Groups number their members in ascending order.
  /// @throw ConfigError if the layout is not of the world's size; CommError if ranks disagree.
  static ProcessGroupCollection make(World& world, const ParallelLayout& layout);

  ProcessGroup world;
  ProcessGroup dp_cp, intra_dp_cp, dp, cp, mp, tp, pp, tp_dp_cp, tp_dp, tp_cp;
  ProcessGroup ep, expt_tp, tp_ep, tp_ep_pp, expt_dp, intra_expt_dp;
  ProcessGroup inter_dist_opt, intra_dist_opt;
  std::optional<ProcessGroup> embd = ProcessGroup(), pos_embd = ProcessGroup();  // not on stages without embedding
  std::vector<ProcessGroup> hcp;                                                 // fastest level first
  std::vector<ProcessGroup> hybrid_dp_cp;  // of 2, 4, ... ranks, and those of dp_cp

  /// The group of that name. @throw InternalError if there is none
  ProcessGroup named(std::string_view name) const;
  /// Returns the place of this rank on the axes that cut parameters.
  ShardPlace shard_place() const;
};

}  // namespace megatron
