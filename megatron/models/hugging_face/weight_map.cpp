#include "megatron/models/hugging_face/weight_map.h"

#include <algorithm>
#include <array>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/base/word_list.h"
#include "megatron/models/model.h"

namespace megatron::hugging_face {
namespace {

/// The key without a layer's number, and the number: "decoder.layers.3.mlp.x" is layer 3 of "decoder.layers.mlp.x". The
/// layers for further tokens follow those of the decoder: of 4 layers, "mtp.layers.0.enorm.x" is layer 4 of
/// "mtp.layers.enorm.x", and "mtp.layers.0.transformer_layer.mlp.x" layer 4 of "decoder.layers.mlp.x".
std::pair<std::string, int64_t> split_layer(const std::string& key, const std::optional<int64_t>& layer,
                                            int64_t num_layers) {
  constexpr std::string_view kLayers = "decoder.layers.", kFurther = "mtp.layers.", kInner = "transformer_layer.";
  const bool is_further = key.starts_with(kFurther);
  if (layer || (!is_further && !key.starts_with(kLayers))) return {key, layer.value_or(0)};
  const size_t begin = (is_further ? kFurther : kLayers).size(), end = key.find_first_not_of("0123456789", begin);
  if (end == begin || end == std::string::npos || key[end] != '.') return {key, 0};
  const int64_t number = std::stoll(key.substr(begin, end - begin)) + (is_further ? num_layers : 0);
  const std::string rest = key.substr(end + 1);
  if (is_further && rest.starts_with(kInner)) return {std::string(kLayers) + rest.substr(kInner.size()), number};
  return {key.substr(0, begin) + rest, number};
}

/// Puts numbers in the place of "{}", one after the other.
std::string with_numbers(std::string name, std::span<const int64_t> numbers) {
  for (const int64_t number : numbers)
    if (const size_t place = name.find("{}"); place != std::string::npos)
      name.replace(place, 2, std::to_string(number));
  return name;
}

/// Rows [begin, begin + count) of a tensor that is as wide as `shape`.
Box rows_of(const Shape& shape, int64_t begin, int64_t count) {
  Box box = Box::whole(shape);
  box.offsets[0] = begin;
  box.sizes[0] = count;
  return box;
}

/// Collects the pieces of one parameter.
class Assembly {
 public:
  Assembly(const TensorRule& rule, const Shape& shape, std::span<const int64_t> numbers)
      : rule_(rule), shape_(shape), numbers_(numbers) {}

  /// The next `count` rows of the parameter are rows from `begin` on of a tensor of the rule.
  void append(size_t tensor, int64_t begin, int64_t count) { append_strided(tensor, begin, count, 1); }
  /// The same, each `step` rows behind the one before.
  void append_strided(size_t tensor, int64_t begin, int64_t count, int64_t step) {
    Box there = rows_of(shape_, begin, (count - 1) * step + 1);
    if (rule_.is_transposed) {
      std::swap(there.offsets[0], there.offsets[1]);
      std::swap(there.sizes[0], there.sizes[1]);
    }
    pieces_.push_back({.tensor = with_numbers(rule_.tensors.at(tensor), numbers_),
                       .there = there,
                       .here = rows_of(shape_, next_, count),
                       .is_transposed = rule_.is_transposed,
                       .step = step});
    next_ += count;
  }
  std::vector<WeightPiece> take() { return std::move(pieces_); }

 private:
  const TensorRule& rule_;
  const Shape& shape_;
  std::span<const int64_t> numbers_;
  int64_t next_ = 0;
  std::vector<WeightPiece> pieces_;
};

/// linear_qkv has for each query group its queries, its key and its value.
void append_query_groups(const TensorRule& rule, const TransformerConfig& config, Assembly& assembly) {
  const int64_t d = config.kv_channels, groups = config.num_query_groups;
  const int64_t q = config.num_attention_heads / groups * d;
  const bool is_fused = rule.arrangement == Arrangement::kFusedQkv;
  const int64_t first_k = is_fused ? groups * q : 0, first_v = is_fused ? first_k + groups * d : 0;
  const size_t k = is_fused ? 0 : 1, v = is_fused ? 0 : 2;
  for (int64_t group = 0; group < groups; ++group) {
    assembly.append(0, group * q, q);
    assembly.append(k, first_k + group * d, d);
    assembly.append(v, first_v + group * d, d);
  }
}

std::vector<WeightPiece> pieces_of(const TensorRule& rule, const TransformerConfig& config, const Shape& shape,
                                   int64_t num_rows, std::span<const int64_t> numbers) {
  Assembly assembly(rule, shape, numbers);
  if (rule.arrangement == Arrangement::kStacked) {
    const auto count = static_cast<int64_t>(rule.tensors.size());
    for (size_t tensor = 0; tensor < rule.tensors.size(); ++tensor) assembly.append(tensor, 0, num_rows / count);
  } else if (rule.arrangement == Arrangement::kGateUp) {
    for (const int64_t part : {0, 1}) assembly.append_strided(0, part, num_rows / 2, 2);
  } else {
    append_query_groups(rule, config, assembly);
  }
  return assembly.take();
}

/// A tensor is as large as its pieces need it.
void grow(Shape& shape, const Box& piece) {
  if (shape.rank() == 0) shape = piece.sizes;
  for (int dim = 0; dim < shape.rank(); ++dim) shape[dim] = std::max(shape[dim], piece.offsets[dim] + piece.sizes[dim]);
}

Shape with_leading(const std::vector<int64_t>& leading, const Shape& shape) {
  std::vector<int64_t> sizes = leading;
  sizes.insert(sizes.end(), shape.begin(), shape.end());
  return Shape(std::span<const int64_t>(sizes));
}

}  // namespace

std::optional<std::string> further_projection(const Family& family, int64_t num_layers) {
  const auto rule = std::ranges::find(family.tensors, kFurtherProjection, &TensorRule::parameter);
  if (rule == family.tensors.end()) return std::nullopt;
  return with_numbers(rule->tensors.front(), std::array{num_layers});
}

void WeightMap::add(ParameterPieces parameter, const TensorRule& rule, const TransformerConfig& config,
                    int64_t num_rows, std::span<const int64_t> numbers) {
  parameter.pieces = pieces_of(rule, config, parameter.shape, num_rows, numbers);
  for (WeightPiece& piece : parameter.pieces) {
    if (rule.stacks_experts) piece.stack = parameter.leading.back();
    grow(tensors_[piece.tensor], tensor_box(piece, piece.here));
  }
  parameters_.push_back(std::move(parameter));
}

WeightMap::WeightMap(const Family& family, const Model& model) {
  constexpr std::string_view kExperts = ".experts.experts.";
  const TransformerConfig& config = model.config();
  std::vector<std::string> unknown;
  for (const Parameter* parameter : model.parameters()) {
    const ParameterOptions& options = parameter->options();
    if (!options.tied.is_first()) continue;
    const auto [key, layer] = split_layer(parameter->stored_key(), options.stored.layer, config.num_layers);
    const auto rule = std::ranges::find(family.tensors, key, &TensorRule::parameter);
    if (rule == family.tensors.end()) {
      unknown.push_back(key);
      continue;
    }
    const Shape& shape = options.shard.global_shape;
    ParameterPieces whole{.key = parameter->stored_key(),
                          .leading = {},
                          .shape = shape,
                          .is_padded = options.shard.unpadded_rows > 0,
                          .layer = options.stored.layer};
    if (whole.layer) whole.leading.push_back({*whole.layer, config.num_layers});
    if (key.find(kExperts) == std::string::npos) {
      const int64_t num_rows = whole.is_padded ? options.shard.unpadded_rows : shape[0];
      add(std::move(whole), *rule, config, num_rows, std::array{layer});
      continue;
    }
    whole.shape = Shape(std::span(shape.begin() + 1, shape.end()));
    for (int64_t expert = 0; expert < shape[0]; ++expert) {
      ParameterPieces one = whole;
      one.leading.push_back({expert, shape[0]});
      add(std::move(one), *rule, config, shape[1], std::array{layer, expert});
    }
  }
  for (const TensorCopy& copy : family.further_copies)
    for (int64_t layer = config.num_layers; layer < config.num_all_layers(); ++layer) {
      if (!tensors_.contains(copy.original)) continue;  // tied: there is one tensor for both
      const std::string name = with_numbers(copy.tensor, std::array{layer});
      tensors_[name] = tensors_.at(copy.original);
      copies_[name] = copy.original;
    }
  require<NotSupported>(unknown.empty(),
                        "[hugging_face] a {} of Hugging Face's has no tensors for {}. Its configuration and the "
                        "model's arguments must say the same.",
                        family.model_type, joined(unknown, ", "));
}

Box tensor_box(const WeightPiece& piece, const Box& part) {
  Box box = part;
  for (int dim = 0; dim < box.offsets.rank(); ++dim) box.offsets[dim] -= piece.here.offsets[dim];
  box.offsets[0] *= piece.step;
  box.sizes[0] = (box.sizes[0] - 1) * piece.step + 1;
  if (piece.is_transposed) {
    std::swap(box.offsets[0], box.offsets[1]);
    std::swap(box.sizes[0], box.sizes[1]);
  }
  for (int dim = 0; dim < box.offsets.rank(); ++dim) box.offsets[dim] += piece.there.offsets[dim];
  if (!piece.stack) return box;
  return {with_leading({piece.stack->index}, box.offsets), with_leading({1}, box.sizes)};
}

Shape parameter_strides(const WeightPiece& piece, const Shape& tensor_strides) {
  Shape strides(std::span(tensor_strides.begin() + (piece.stack ? 1 : 0), tensor_strides.end()));
  if (piece.is_transposed) std::swap(strides[0], strides[1]);
  strides[0] *= piece.step;
  return strides;
}

Shape tensor_strides(const WeightPiece& piece, const Shape& strides) {
  return piece.stack ? with_leading({0}, strides) : strides;
}

Shape stored_shape(const ParameterPieces& parameter) {
  std::vector<int64_t> sizes;
  for (const LeadingPlace& place : parameter.leading) sizes.push_back(place.size);
  return with_leading(sizes, parameter.shape);
}

Box stored_box(const ParameterPieces& parameter) {
  const Box whole = Box::whole(parameter.shape);
  std::vector<int64_t> indices;
  for (const LeadingPlace& place : parameter.leading) indices.push_back(place.index);
  return {with_leading(indices, whole.offsets), with_leading(std::vector<int64_t>(indices.size(), 1), whole.sizes)};
}

}  // namespace megatron::hugging_face
