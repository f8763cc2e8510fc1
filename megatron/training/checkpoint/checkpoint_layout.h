// Where a parameter's shard lies in a checkpoint, and which of the ranks that hold it stores it.
#pragma once

#include <string>
#include <vector>

#include "megatron/autograd/parameter.h"
#include "megatron/comm/process_group_collection.h"
#include "megatron/distributed/buffer_layout.h"

namespace megatron {

/// One box of a global tensor, and where its elements are in what a rank holds of it: in its shard, or in the part of
/// the shard that its optimizer owns. Shapes include the leading axis over layers, if there is one.
struct CheckpointChunk {
  Shape offsets, sizes;  // in the stored tensor
  Shape strides;         // in the shard
  int64_t first = 0;     // its first element, counted from the first one of the range
  bool is_copy = false;  // a rank before this one, on the tensor or the pipeline axis, holds the same and stores it
};

/// A parameter as Megatron stores it: layers of one name are one tensor with a leading axis, and the norm in front of a
/// linear has the linear's name ("self_attention.linear_qkv.layer_norm_weight").
struct CheckpointPlacement {
  std::string key;
  Shape global_shape;
  bool is_padded = false;  // rows of dimension 0 may differ in number between runs: padded vocabulary
  std::vector<CheckpointChunk> chunks;
};
CheckpointPlacement placement_of(const Parameter& parameter, int64_t num_layers, const ProcessGroupCollection& groups);
/// Of a part of the parameter's shard alone: elements [begin, end), taken as flat.
CheckpointPlacement placement_of(const Parameter& parameter, const ElementRange& part, int64_t num_layers,
                                 const ProcessGroupCollection& groups);

/// Deals what data-parallel ranks hold alike: the next item goes to the rank that has the fewest bytes so far. All of
/// them ask for the same items in the same order.
class ReplicaDealer {
 public:
  /// @param deals  false: the first rank takes all (--no-ckpt-fully-parallel-save).
  ReplicaDealer(const ProcessGroup& replicas, bool deals)
      : rank_(replicas.rank()), bytes_(deals ? static_cast<size_t>(replicas.size()) : 1) {}
  /// The rank that takes the next item.
  int owner_of(int64_t bytes);
  /// Whether this rank takes the next item.
  bool takes(int64_t bytes) { return owner_of(bytes) == rank_; }

 private:
  int rank_;
  std::vector<int64_t> bytes_;  // of each rank
};

}  // namespace megatron
