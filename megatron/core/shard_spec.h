// How a parameter is cut over ranks, written once on the parameter. Initialisation, optimizer, checkpoint, memory plan
// and gradient norm take their boxes of the whole tensor from here.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "megatron/core/box.h"
#include "megatron/core/shape.h"

namespace megatron {

/// The two grids over the same ranks (ParallelLayout). A parameter lives in one of them: its axes cut the parameter or
/// repeat it, and its data axis has the replicas that reduce the gradient together.
enum class ShardGrid { kDense, kExpert };

/// An axis that can cut a dimension: the tensor axis of the dense grid, or the axes of the expert grid.
enum class ShardAxis { kTensor, kExpert, kExpertTensor };

/// One part of a dimension that is cut on its own: gate and up of a gated MLP, or q, k and v of an attention group.
struct ShardSection {
  int64_t size = 0;         // rows of the whole tensor (of one group, where the cut has groups)
  bool replicated = false;  // whole on each rank of a subgroup (keys and values when there are fewer groups than ranks)
};

/// A dimension cut over an axis. It consists of `num_groups` equal groups, each made of `sections` in this order.
/// With at least as many groups as ranks each rank owns a run of whole groups. With fewer, num_ranks / num_groups
/// neighbouring ranks share a group: its sections are cut among them, replicated ones are whole on each.
struct ShardCut {
  int dim = 0;
  ShardAxis axis = ShardAxis::kTensor;
  int64_t num_groups = 1;
  std::vector<ShardSection> sections;

  int64_t group_size() const;
  int64_t global_size() const { return num_groups * group_size(); }
};

/// The coordinates of a rank on each axis that can cut a parameter.
struct ShardPlace {
  struct Coordinate {
    int64_t rank = 0, size = 1;
    bool operator==(const Coordinate&) const = default;
  };
  Coordinate tensor, expert, expert_tensor;

  const Coordinate& on(ShardAxis axis) const;
  bool operator==(const ShardPlace&) const = default;
};

/// A parameter's place among the pipeline ranks that hold copies of one tensor (TieGroup).
struct TiedCopy {
  std::string group;                    // name of the tie group; empty: the parameter is tied to no other
  int64_t holder = 0, num_holders = 1;  // the number of this rank among those that hold a copy

  /// The first holder counts the tensor and stores it.
  bool is_first() const { return holder == 0; }
};

/// The reduction that a gradient needs beside the data-parallel sum.
enum class GradReduction {
  kNone,
  kSumOverTensor  // each tensor rank saw part of the rows (norms under sequence parallelism)
};

struct ShardSpec {
  Shape global_shape;          // as stored, padding included
  int64_t unpadded_rows = 0;   // rows of dimension 0 that mean something; 0: all (padded vocabulary)
  std::vector<ShardCut> cuts;  // none: whole on every rank. Each has a dimension and an axis of its own
  ShardGrid grid = ShardGrid::kDense;
  bool is_of_one_expert_rank = false;  // the other ranks of the expert axis hold other parameters in its place
  GradReduction grad_reduction = GradReduction::kNone;

  static ShardSpec whole(const Shape& shape) { return {.global_shape = shape, .cuts = {}}; }
  static ShardSpec cut_by(const Shape& shape, ShardCut cut) {
    return {.global_shape = shape, .cuts = {std::move(cut)}};
  }
  /// @throw ConfigError as shard_boxes
  Shape local_shape(const ShardPlace& place) const;
};

/// A box of the whole tensor that a rank holds.
struct ShardBox {
  Box global;            // in the whole tensor
  Shape local_offsets;   // where it begins in the rank's shard
  bool is_owner = true;  // false: a lower rank of an axis of the grid holds the same box

  Box local() const { return {local_offsets, global.sizes}; }
  bool operator==(const ShardBox&) const = default;
};

/// The part of a tensor on a rank, in the order of its shard. Each element of the whole tensor has exactly one owner
/// among the places of the grid: of those that hold it the lowest rank on each axis. The owner counts it in the
/// gradient norm and stores it in checkpoints; its replicas on the data axis share that work (replicas_of).
/// @throw ConfigError if groups and ranks do not divide, a section does not divide, a cut does not fit the shape or the
/// grid, or two cuts have a dimension or an axis in common.
std::vector<ShardBox> shard_boxes(const ShardSpec& spec, const ShardPlace& place);

}  // namespace megatron
