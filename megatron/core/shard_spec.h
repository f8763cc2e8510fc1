// How a parameter is laid out over ranks, written once on the parameter: optimizer, checkpoint, bridge, memory plan and
// gradient norm read it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "megatron/core/shape.h"

namespace megatron {

/// The grid axis that cuts a dimension: of the dense grid, or of the expert grid.
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

/// Rows [global_begin, global_begin + length) of the whole dimension lie at local_begin of a rank's shard.
struct ShardRange {
  int64_t global_begin = 0, local_begin = 0, length = 0;
  bool operator==(const ShardRange&) const = default;
};

/// What a rank owns of a cut dimension, in local order.
/// @throw ConfigError if neither divides the other, or a section does not divide.
std::vector<ShardRange> local_ranges(const ShardCut& cut, int64_t rank, int64_t num_ranks);
int64_t local_size(const ShardCut& cut, int64_t num_ranks);

/// Whether a rank below this one has the range, one of its local_ranges, too. Of rows that several ranks have alike the
/// lowest rank's count: in the gradient norm, and as what a checkpoint stores.
bool is_on_lower_rank(const ShardCut& cut, const ShardRange& range, int64_t rank, int64_t num_ranks);

/// What must happen to a gradient beside the data-parallel sum.
enum class GradReduction {
  kNone,
  kSumOverTensor  // each tensor rank saw part of the rows (norms under sequence parallelism)
};

struct ShardSpec {
  Shape global_shape;           // as stored, padding included
  int64_t unpadded_rows = 0;    // rows of dimension 0 that mean something; 0: all (padded vocabulary)
  std::optional<ShardCut> cut;  // nothing: whole on every rank
  std::string tie_group;        // parameters of one name are one tensor that lives in several places
  GradReduction grad_reduction = GradReduction::kNone;

  static ShardSpec whole(const Shape& shape) {
    return {.global_shape = shape, .unpadded_rows = 0, .cut = {}, .tie_group = {}};
  }
  Shape local_shape(int64_t num_ranks) const;
};

}  // namespace megatron
