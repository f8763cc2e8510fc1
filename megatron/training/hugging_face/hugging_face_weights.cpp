#include <algorithm>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/base/word_list.h"
#include "megatron/training/hugging_face/dequantized_folder.h"
#include "megatron/training/hugging_face/hugging_face_model.h"
#include "megatron/training/hugging_face/meta_folder.h"

namespace megatron {
namespace {

using hugging_face::ParameterPieces;
using hugging_face::WeightMap;
using hugging_face::WeightPiece;

constexpr size_t kMostListed = 20;

/// A shape or position without its first dimensions.
Shape without_leading(const Shape& shape, size_t count) { return Shape(std::span(shape.begin() + count, shape.end())); }

void list(std::vector<std::string>& mistakes, std::string_view what, std::vector<std::string> names) {
  if (names.empty()) return;
  const size_t count = names.size();
  if (count > kMostListed) names.resize(kMostListed);
  mistakes.push_back(fmt::format("{}: {}{}", what, joined(names, ", "),
                                 count > kMostListed ? fmt::format(" and {} more", count - kMostListed) : ""));
}

/// Reads whole rows: the file is read from front to back, and elements are scattered in memory.
/// @param part  of the parameter
void read_rearranged(const WeightFolder& folder, const std::string& name, const WeightPiece& piece, const Box& part,
                     std::byte* destination, const Shape& strides) {
  const int64_t bytes = size_of(folder.tensor(name).type);
  const Box box = tensor_box(piece, part);
  const Shape own = box.sizes.contiguous_strides();
  std::vector<std::byte> rows(static_cast<size_t>(box.sizes.num_elements() * bytes));
  folder.read_box(name, box, rows.data(), own);
  for_each_run(part.sizes, parameter_strides(piece, own), strides, [&](int64_t a, int64_t b, int64_t count) {
    std::copy_n(rows.data() + a * bytes, count * bytes, destination + b * bytes);
  });
}

std::unique_ptr<const WeightFolder> open_weights(const FileSystem& files, const HuggingFaceModel& model) {
  if (model.is_meta_format) return std::make_unique<MetaFolder>(files, model.directory);
  return std::make_unique<DequantizedFolder>(files, model.directory, model.quantization);
}

}  // namespace

HuggingFaceWeights::HuggingFaceWeights(const FileSystem& files, const HuggingFaceModel& model, WeightMap map)
    : folder_(open_weights(files, model)), map_(std::move(map)) {
  require_all_tensors(model);
  require_equal_copies();
  for (size_t i = 0; i < map_.parameters().size(); ++i) by_key_[map_.parameters()[i].key].push_back(i);
  for (const auto& [key, layers] : by_key_) {
    const WeightPiece& first = map_.parameters()[layers.front()].pieces.front();
    for (const size_t layer : layers)
      for (const WeightPiece& piece : map_.parameters()[layer].pieces) {
        const ElementType type = folder_->tensor(name_in_folder(piece.tensor)).type, wanted = *type_of(key);
        require<NotSupported>(type == wanted && info(type).dtype && is_floating(*info(type).dtype),
                              "[hugging_face] {}: {} is {} and {} is {}. Tensors that form one parameter of Megatron's "
                              "must have one type, of fp64, fp32, fp16 and bf16. Convert the model first.",
                              model.directory, first.tensor, wanted, piece.tensor, type);
      }
  }
}

std::string HuggingFaceWeights::name_in_folder(const std::string& tensor) const {
  if (folder_->contains(tensor)) return tensor;
  const std::string bare = tensor.substr(tensor.find('.') + 1);
  return folder_->contains(bare) ? bare : tensor;
}

void HuggingFaceWeights::require_all_tensors(const HuggingFaceModel& model) const {
  std::vector<std::string> missing, other_shapes, unknown;
  std::set<std::string> known;
  for (const auto& [tensor, shape] : map_.tensors()) {
    const std::string name = *known.insert(name_in_folder(tensor)).first;
    if (!folder_->contains(name))
      missing.push_back(name);
    else if (folder_->tensor(name).shape != shape)
      other_shapes.push_back(fmt::format("{} is {} instead of {}", name, folder_->tensor(name).shape, shape));
  }
  const bool is_tied = model.config().transformer.share_embeddings_and_output_weights;
  for (const std::string& name : folder_->names()) {
    const bool is_ignored = std::ranges::any_of(model.family.ignored_tensors,
                                                [&](const std::string& ending) { return name.ends_with(ending); });
    // The output layer of a tied model is its embedding, whether a file repeats it or not.
    if (!known.contains(name) && !is_ignored && !(is_tied && name == "lm_head.weight")) unknown.push_back(name);
  }
  std::vector<std::string> mistakes;
  list(mistakes, "missing tensors", std::move(missing));
  list(mistakes, "unknown tensors", std::move(unknown));
  list(mistakes, "tensors of another shape than config.json says", std::move(other_shapes));
  require<CheckpointError>(mistakes.empty(),
                           "[hugging_face] {} does not hold the weights of the {} that its config.json describes:\n"
                           "  - {}\nFetch the folder's files again, all of one version.",
                           model.directory, model.family.model_type, joined(mistakes, "\n  - "));
}

void HuggingFaceWeights::require_equal_copies() const {
  constexpr int64_t kRows = 1024;  // of two tensors are in memory
  for (const auto& [copy, original] : map_.copies()) {
    const std::string ours = name_in_folder(copy), theirs = name_in_folder(original);
    const auto bytes_of = [&](const std::string& name, const Box& rows) {
      std::vector<std::byte> bytes(
          static_cast<size_t>(rows.sizes.num_elements() * size_of(folder_->tensor(name).type)));
      folder_->read_box(name, rows, bytes.data(), rows.sizes.contiguous_strides());
      return bytes;
    };
    Box rows = Box::whole(folder_->tensor(ours).shape);
    const int64_t num_rows = rows.sizes[0];
    for (; rows.offsets[0] < num_rows; rows.offsets[0] += kRows) {
      rows.sizes[0] = std::min(kRows, num_rows - rows.offsets[0]);
      require<NotSupported>(bytes_of(ours, rows) == bytes_of(theirs, rows),
                            "[hugging_face] {}: {} differs from {}. Layers that predict further tokens share the "
                            "embedding and the output layer of the model in Megatron. Remove these layers from the "
                            "files.",
                            folder_->directory(), ours, theirs);
    }
  }
}

const std::vector<size_t>& HuggingFaceWeights::layers_of(std::string_view key) const {
  const auto found = by_key_.find(key);
  require<CheckpointError>(found != by_key_.end(),
                           "[hugging_face] {} has no weights for {}. The model must be the one of its config.json: "
                           "leave out flags that change it.",
                           folder_->directory(), key);
  return found->second;
}

std::optional<ElementType> HuggingFaceWeights::type_of(std::string_view key) const {
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return std::nullopt;
  const ParameterPieces& first = map_.parameters()[found->second.front()];
  return folder_->tensor(name_in_folder(first.pieces.front().tensor)).type;
}

void HuggingFaceWeights::read_layer(const ParameterPieces& parameter, const Box& wanted, std::byte* destination,
                                    const Shape& strides) const {
  for (const WeightPiece& piece : parameter.pieces) {
    const std::optional<Box> common = intersection(piece.here, wanted);
    if (!common) continue;
    const std::string name = name_in_folder(piece.tensor);
    Shape at = common->offsets;
    for (int dim = 0; dim < at.rank(); ++dim) at[dim] -= wanted.offsets[dim];
    std::byte* to = destination + element_offset(at, strides) * size_of(folder_->tensor(name).type);
    if (piece.is_box())
      folder_->read_box(name, tensor_box(piece, *common), to, tensor_strides(piece, strides));
    else
      read_rearranged(*folder_, name, piece, *common, to, strides);
  }
}

void HuggingFaceWeights::read_tensor(std::string_view key, const Shape& global_shape, const Shape& offsets,
                                     const View& destination) const {
  const Shape shape = stored_shape(map_.parameters()[layers_of(key).front()]);
  require<CheckpointError>(global_shape == shape,
                           "[hugging_face] {}: {} has shape {} there, the model has {}. Leave out flags that change "
                           "the model.",
                           folder_->directory(), key, shape, global_shape);
  read_resized_tensor(key, offsets, destination);
}

void HuggingFaceWeights::read_resized_tensor(std::string_view key, const Shape& offsets,
                                             const View& destination) const {
  const std::vector<size_t>& layers = layers_of(key);
  const auto type = type_of(key);
  require<CheckpointError>(info(*type).dtype == destination.dtype,
                           "[hugging_face] {} is {}, but {} is wanted. Read it as it is stored and convert it.", key,
                           *type, destination.dtype);
  fill_zero(destination);
  auto* bytes = static_cast<std::byte*>(destination.data);
  for (const size_t i : layers) {
    const ParameterPieces& parameter = map_.parameters()[i];
    const size_t num_leading = parameter.leading.size();
    int64_t first = 0;  // element of `destination` where the parameter begins
    bool is_wanted = true;
    for (size_t dim = 0; dim < num_leading; ++dim) {
      const auto d = static_cast<int>(dim);
      const int64_t place = parameter.leading[dim].index - offsets[d];
      is_wanted = is_wanted && place >= 0 && place < destination.shape[d];
      first += place * destination.strides[d];
    }
    if (is_wanted)
      read_layer(parameter, {without_leading(offsets, num_leading), without_leading(destination.shape, num_leading)},
                 bytes + first * size_of(*type), without_leading(destination.strides, num_leading));
  }
}

}  // namespace megatron
