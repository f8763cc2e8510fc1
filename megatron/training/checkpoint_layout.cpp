#include "megatron/training/checkpoint_layout.h"

#include <algorithm>
#include <charconv>
#include <optional>

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

/// Whether a rank before this one has these rows too: keys and values where there are fewer groups than ranks.
bool is_copy_of_tensor_rank(const ParameterOptions& options, const ShardRange& range) {
  for (int64_t rank = 0; rank < options.shard_rank; ++rank) {
    const std::vector<ShardRange> others = local_ranges(*options.shard.cut, rank, options.num_shards);
    if (std::any_of(others.begin(), others.end(),
                    [&](const ShardRange& other) { return other.global_begin == range.global_begin; }))
      return true;
  }
  return false;
}

template <class V>
V stacked(V view) {
  view.strides = with_leading(view.num_elements(), view.strides);
  view.shape = with_leading(1, view.shape);
  return view;
}

}  // namespace

View CheckpointChunk::view(Tensor& shard) const {
  const View box = shard.slice(dim, local_begin, length).view();
  return is_stacked ? stacked(box) : box;
}
ConstView CheckpointChunk::view(const Tensor& shard) const {
  const Tensor part = shard.slice(dim, local_begin, length);
  return is_stacked ? stacked(part.view()) : part.view();
}

CheckpointPlacement placement_of(const Parameter& parameter, int64_t num_layers, const ProcessGroupCollection& groups) {
  const ParameterOptions& options = parameter.options();
  const ShardSpec& shard = options.shard;
  const auto layer = layer_name_of(parameter.name());
  CheckpointPlacement placement{
      .key = layer ? stacked_layer_key(stored_name(layer->rest)) : parameter.name(),
      .global_shape = layer ? with_leading(num_layers, shard.global_shape) : shard.global_shape,
      .is_padded = shard.unpadded_rows > 0,
      .chunks = {}};
  std::vector<ShardRange> ranges{{0, 0, shard.global_shape[0]}};
  if (shard.cut) ranges = local_ranges(*shard.cut, options.shard_rank, options.num_shards);
  const int dim = shard.cut ? shard.cut->dim : 0;
  const bool is_tied_copy = !shard.tie_group.empty() && groups.pp.rank() > 0;
  for (const ShardRange& range : ranges) {
    Shape offsets = shard.global_shape;
    for (int i = 0; i < offsets.rank(); ++i) offsets[i] = i == dim ? range.global_begin : 0;
    placement.chunks.push_back(
        {.offsets = layer ? with_leading(layer->layer, offsets) : offsets,
         .dim = dim,
         .local_begin = range.local_begin,
         .length = range.length,
         .is_stacked = layer.has_value(),
         .is_copy = is_tied_copy || (shard.cut ? is_copy_of_tensor_rank(options, range) : groups.tp.rank() > 0)});
  }
  return placement;
}

bool ReplicaDealer::takes(int64_t bytes) {
  const auto least = std::ranges::min_element(bytes_);
  *least += bytes;
  return static_cast<size_t>(least - bytes_.begin()) == rank_;
}

}  // namespace megatron
