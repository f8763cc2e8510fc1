// Where a parameter's shard lies in a checkpoint.
#pragma once

#include <string>
#include <vector>

#include "megatron/autograd/parameter.h"

namespace megatron {

/// One box of a global tensor that a shard holds, and the same box in the shard.
struct CheckpointChunk {
  Shape offsets;  // in the stored tensor, its leading axis over layers included
  View view(Tensor& shard) const;
  ConstView view(const Tensor& shard) const;

  int dim = 0;  // of the shard, without the axis over layers
  int64_t local_begin = 0, length = 0;
  bool is_stacked = false;
};

/// A parameter as Megatron stores it: layers of one name are one tensor with a leading axis, and the norm in front of a
/// linear has the linear's name ("self_attention.linear_qkv.layer_norm_weight").
struct CheckpointPlacement {
  std::string key;
  Shape global_shape;
  bool is_padded = false;  // rows of dimension 0 may differ in number between runs: padded vocabulary
  std::vector<CheckpointChunk> chunks;
};
CheckpointPlacement placement_of(const Parameter& parameter, int64_t num_layers);

}  // namespace megatron
