#include "megatron/optimizer/element_numbers.h"

#include <algorithm>

namespace megatron {

kernels::ElementNumbers element_numbers_of(const Parameter& parameter, int64_t first) {
  const ShardSpec& shard = parameter.options().shard;
  kernels::ElementNumbers numbers{.first = first};
  if (shard.cuts.empty()) return numbers;
  const std::vector<ShardBox> boxes = parameter.boxes();
  const int dim = std::ranges::max(shard.cuts, {}, &ShardCut::dim).dim;  // the runs are those of this dimension
  const Shape whole = shard.global_shape.contiguous_strides(), local = parameter.shape().contiguous_strides();
  const bool has_runs = std::ranges::all_of(boxes, [&](const ShardBox& box) {
    for (int outer = 0; outer < dim; ++outer)
      if (box.global.sizes[outer] != parameter.shape()[outer] ||
          (outer > 0 && box.global.sizes[outer] != shard.global_shape[outer]))
        return false;
    return true;
  });
  require<NotSupported>(has_runs && boxes.size() <= numbers.runs.size(),
                        "[Optimizer] the shard of {} has {} runs of neighbours, rounding at random knows {} at most. "
                        "Give --main-params-dtype fp32 and --exp-avg-sq-dtype fp32, or the layer several weights of at "
                        "most {} sections instead of one.",
                        parameter.name(), boxes.size(), numbers.runs.size(), numbers.runs.size());
  numbers.block = local[dim] * parameter.shape()[dim];
  numbers.whole_block = whole[dim] * shard.global_shape[dim];
  for (size_t i = 0; i < boxes.size(); ++i) {
    const int64_t begin = boxes[i].local_offsets[dim] * local[dim];
    numbers.runs[i] = {begin, element_offset(boxes[i].global.offsets, whole) - begin};
  }
  return numbers;
}

}  // namespace megatron
