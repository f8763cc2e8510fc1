// Where a parameter's shard lies in a checkpoint, and which of the ranks that hold it stores it.
#pragma once

#include <string>
#include <vector>

#include "megatron/autograd/parameter.h"
#include "megatron/comm/process_group_collection.h"

namespace megatron {

/// One box of a global tensor that a shard holds, and the same box in the shard.
struct CheckpointChunk {
  Shape offsets;  // in the stored tensor, its leading axis over layers included
  View view(Tensor& shard) const;
  ConstView view(const Tensor& shard) const;

  int dim = 0;  // of the shard, without the axis over layers
  int64_t local_begin = 0, length = 0;
  bool is_stacked = false;
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

/// Deals what data-parallel ranks hold alike: the next item goes to the rank that has the fewest bytes so far. All of
/// them ask for the same items in the same order.
class ReplicaDealer {
 public:
  explicit ReplicaDealer(const ProcessGroup& replicas)
      : rank_(static_cast<size_t>(replicas.rank())), bytes_(static_cast<size_t>(replicas.size())) {}
  /// Whether this rank stores it.
  bool takes(int64_t bytes);

 private:
  size_t rank_;
  std::vector<int64_t> bytes_;  // of each rank
};

}  // namespace megatron
