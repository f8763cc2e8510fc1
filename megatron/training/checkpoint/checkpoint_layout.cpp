#include "megatron/training/checkpoint/checkpoint_layout.h"

#include <optional>

namespace megatron {
namespace {

Shape with_leading(int64_t size, const Shape& shape) {
  std::vector<int64_t> sizes{size};
  sizes.insert(sizes.end(), shape.begin(), shape.end());
  return Shape(std::span<const int64_t>(sizes));
}

}  // namespace

CheckpointPlacement placement_of(const Parameter& parameter, int64_t num_layers) {
  return placement_of(parameter, {0, parameter.shape().num_elements()}, num_layers);
}

CheckpointPlacement placement_of(const Parameter& parameter, const ElementRange& part, int64_t num_layers) {
  const ParameterOptions& options = parameter.options();
  const ShardSpec& shard = options.shard;
  const std::optional<int64_t>& layer = options.stored.layer;
  const auto stacked = [&](int64_t leading, const Shape& shape) {
    return layer ? with_leading(leading, shape) : shape;
  };
  CheckpointPlacement placement{.key = parameter.stored_key(),
                                .global_shape = stacked(num_layers, shard.global_shape),
                                .is_padded = shard.unpadded_rows > 0,
                                .chunks = {}};
  const Shape strides = parameter.shape().contiguous_strides();
  const std::vector<Box> held = boxes_of_flat_range(Box::whole(parameter.shape()), part.begin, part.end);
  for (const ShardBox& box : parameter.boxes())
    for (const Box& of_part : held) {
      const std::optional<Box> own = intersection(of_part, box.local());
      if (!own) continue;
      Shape offsets = own->offsets;
      for (int dim = 0; dim < offsets.rank(); ++dim) offsets[dim] += box.global.offsets[dim] - box.local_offsets[dim];
      placement.chunks.push_back({.offsets = stacked(layer.value_or(0), offsets),
                                  .sizes = stacked(1, own->sizes),
                                  .strides = stacked(parameter.shape().num_elements(), strides),
                                  .first = element_offset(own->offsets, strides) - part.begin,
                                  .is_copy = !box.is_owner || !options.tied.is_first()});
    }
  return placement;
}

}  // namespace megatron
