// The place of a parameter's shard in a checkpoint, and which of the ranks that hold it stores it.
#pragma once

#include <string>
#include <vector>

#include "megatron/autograd/parameter.h"
#include "megatron/distributed/buffer_layout.h"

namespace megatron {

/// One box of a global tensor, and where its elements are in what a rank holds of it: in its shard, or in the part of
/// the shard that its optimizer owns. Shapes include the leading axis over layers, if there is one.
struct CheckpointChunk {
  Shape offsets, sizes;  // in the stored tensor
  Shape strides;         // in the shard
  int64_t first = 0;     // its first element, counted from the first one of the range
  bool is_copy = false;  // another place of the grid owns it (ShardBox), or another pipeline rank (TiedCopy)
};

/// A parameter as Megatron stores it (StoredName): layers of one name are one tensor with a leading axis.
struct CheckpointPlacement {
  std::string key;
  Shape global_shape;
  bool is_padded = false;  // rows of dimension 0 may differ in number between runs: padded vocabulary
  std::vector<CheckpointChunk> chunks;
};
/// @param num_layers  of the whole model
CheckpointPlacement placement_of(const Parameter& parameter, int64_t num_layers);
/// The placement of a part of the parameter's shard alone: elements [begin, end) of the flattened shard.
CheckpointPlacement placement_of(const Parameter& parameter, const ElementRange& part, int64_t num_layers);

}  // namespace megatron
