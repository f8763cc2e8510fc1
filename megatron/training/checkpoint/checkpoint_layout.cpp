#include "megatron/training/checkpoint/checkpoint_layout.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "megatron/core/box.h"
#include "megatron/dist_checkpointing/megatron_names.h"

namespace megatron {
namespace {

constexpr std::string_view kLayers = "decoder.layers.";

struct LayerName {
  int64_t layer = 0;
  std::string rest;
};

/// Splits "decoder.layers.3.mlp.linear_fc1.weight"; nothing for parameters outside of layers.
std::optional<LayerName> layer_name_of(const std::string& name) {
  if (!name.starts_with(kLayers)) return std::nullopt;
  LayerName result;
  const char* begin = name.data() + kLayers.size();
  const auto [end, error] = std::from_chars(begin, name.data() + name.size(), result.layer);
  require(error == std::errc() && *end == '.', "[checkpoint] '{}' is not the name of a layer's parameter.", name);
  result.rest = end + 1;
  return result;
}

/// Megatron stores a norm with the linear behind it, whatever implementation ran.
std::string stored_name(std::string rest) {
  for (const auto& [ours, stored] :
       {std::pair<std::string_view, std::string_view>{"input_layernorm.", "self_attention.linear_qkv.layer_norm_"},
        {"pre_mlp_layernorm.", "mlp.linear_fc1.layer_norm_"}})
    if (rest.starts_with(ours)) return std::string(stored) + rest.substr(ours.size());
  return rest;
}

Shape with_leading(int64_t size, const Shape& shape) {
  std::vector<int64_t> sizes{size};
  sizes.insert(sizes.end(), shape.begin(), shape.end());
  return Shape(std::span<const int64_t>(sizes));
}

}  // namespace

CheckpointPlacement placement_of(const Parameter& parameter, int64_t num_layers, const ProcessGroupCollection& groups) {
  return placement_of(parameter, {0, parameter.shape().num_elements()}, num_layers, groups);
}

CheckpointPlacement placement_of(const Parameter& parameter, const ElementRange& part, int64_t num_layers,
                                 const ProcessGroupCollection& groups) {
  const ParameterOptions& options = parameter.options();
  const ShardSpec& shard = options.shard;
  const auto layer = layer_name_of(parameter.name());
  const auto stacked = [&](int64_t leading, const Shape& shape) {
    return layer ? with_leading(leading, shape) : shape;
  };
  CheckpointPlacement placement{.key = layer ? stacked_layer_key(stored_name(layer->rest)) : parameter.name(),
                                .global_shape = stacked(num_layers, shard.global_shape),
                                .is_padded = shard.unpadded_rows > 0,
                                .chunks = {}};
  std::vector<ShardRange> ranges{{0, 0, shard.global_shape[0]}};
  if (shard.cut) ranges = local_ranges(*shard.cut, options.shard_rank, options.num_shards);
  const int dim = shard.cut ? shard.cut->dim : 0;
  const bool is_tied_copy = !shard.tie_group.empty() && groups.pp.rank() > 0;
  const Shape strides = parameter.shape().contiguous_strides();
  const std::vector<Box> boxes = boxes_of_flat_range(Box::whole(parameter.shape()), part.begin, part.end);
  for (const ShardRange& range : ranges) {
    Box rows = Box::whole(parameter.shape());
    rows.offsets[dim] = range.local_begin;
    rows.sizes[dim] = range.length;
    const bool is_copy =
        is_tied_copy || (shard.cut ? is_on_lower_rank(*shard.cut, range, options.shard_rank, options.num_shards)
                                   : groups.tp.rank() > 0);
    for (const Box& box : boxes) {
      const std::optional<Box> own = intersection(box, rows);
      if (!own) continue;
      Shape offsets = own->offsets;
      offsets[dim] += range.global_begin - range.local_begin;
      placement.chunks.push_back({.offsets = stacked(layer ? layer->layer : 0, offsets),
                                  .sizes = stacked(1, own->sizes),
                                  .strides = stacked(parameter.shape().num_elements(), strides),
                                  .first = element_offset(own->offsets, strides) - part.begin,
                                  .is_copy = is_copy});
    }
  }
  return placement;
}

int ReplicaDealer::owner_of(int64_t bytes) {
  const auto least = std::ranges::min_element(bytes_);
  *least += bytes;
  return static_cast<int>(least - bytes_.begin());
}

}  // namespace megatron
