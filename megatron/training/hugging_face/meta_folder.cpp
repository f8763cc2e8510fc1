#include "megatron/training/hugging_face/meta_folder.h"

#include <algorithm>

#include "megatron/base/error.h"

namespace megatron {

using hugging_face::Json;
using hugging_face::MetaRule;
using hugging_face::MetaSplit;

namespace {

constexpr std::string_view kLayer = "{}";
constexpr std::string_view kFrequencies = "rope.freqs";  // follow from params.json

std::string with_layer(std::string name, const std::string& layer) {
  if (const size_t place = name.find(kLayer); place != std::string::npos) name.replace(place, kLayer.size(), layer);
  return name;
}

Json parse_params(const FileSystem& files, const std::string& directory) {
  const std::string path = join_path(directory, kMetaParamsFile);
  Json params = Json::parse(read_file(files, path), nullptr, false);
  require<CheckpointError>(params.is_object(), "[hugging_face] {} is no JSON object. Fetch the file again.", path);
  return params;
}

/// Returns the entries of a dict or an OrderedDict.
std::span<const pickle::Entry> entries_of(const pickle::Object& root) {
  return root.is_instance() ? std::span<const pickle::Entry>(root.instance().entries) : root.entries();
}

int64_t integer_at(const Json& params, const char* key) {
  const auto found = params.find(key);
  return found != params.end() && found->is_number_integer() ? found->get<int64_t>() : 0;
}

}  // namespace

MetaFolder::MetaFolder(const FileSystem& files, const std::string& directory)
    : directory_(directory), params_(parse_params(files, directory)) {
  open(files);
  for (const auto& [name, object] : files_.front().tensors) unknown_.push_back(name);
  for (const MetaRule& rule : hugging_face::meta_llama_tensors()) {
    const int64_t count = rule.stored.find(kLayer) == std::string::npos ? 1 : integer_at(params_, "n_layers");
    for (int64_t layer = 0; layer < count; ++layer) add(rule, std::to_string(layer));
  }
  std::erase_if(unknown_, [&](const std::string& name) { return name == kFrequencies; });
}

void MetaFolder::open(const FileSystem& files) {
  for (size_t number = 0;; ++number) {
    const std::string path = join_path(directory_, fmt::format("consolidated.{:02}.pth", number));
    if (!files.exists(path)) break;
    File& opened = files_.emplace_back();
    opened.file = std::make_unique<TorchFile>(files.open_for_reading(path), path);
    for (const auto& [key, value] : entries_of(opened.file->root())) opened.tensors[key->as_string()] = value;
  }
  require<CheckpointError>(!files_.empty(),
                           "[hugging_face] {} has {}, but no consolidated.00.pth. Fetch the folder's files again.",
                           directory_, kMetaParamsFile);
}

void MetaFolder::add(const MetaRule& rule, const std::string& layer) {
  const std::string name = with_layer(rule.stored, layer);
  Source source;
  for (const File& file : files_) {
    const auto found = file.tensors.find(name);
    if (found == file.tensors.end() && source.parts.empty()) return;  // the model says which tensors it needs
    const std::optional<TorchTensor> part = found != file.tensors.end() ? torch_tensor(*found->second) : std::nullopt;
    require<CheckpointError>(part.has_value(), "[hugging_face] {} has no tensor {}. Fetch the file again.",
                             file.file->source(), name);
    source.parts.push_back(*part);
    if (rule.split == MetaSplit::kRepeated) break;
  }
  const TorchTensor& first = source.parts.front();
  const int rank = first.shape.rank();
  const bool has_whole_rows =
      rule.split == MetaSplit::kEmbedding && rank == 2 && first.shape[1] == integer_at(params_, "dim");
  if (rule.split == MetaSplit::kColumns || (rule.split == MetaSplit::kEmbedding && !has_whole_rows))
    source.split_dim = 1;
  for (const TorchTensor& part : source.parts)
    require<CheckpointError>(part.shape == first.shape && part.type == first.type && rank > source.split_dim,
                             "[hugging_face] {}: {} is {} {} in one file and {} {} in another. Fetch the files again, "
                             "all of one version.",
                             directory_, name, first.type, first.shape, part.type, part.shape);
  source.tensor = {first.type, first.shape};
  source.tensor.shape[source.split_dim] *= std::ssize(source.parts);
  const int64_t heads = std::max<int64_t>(integer_at(params_, "n_heads"), 1), given = integer_at(params_, "head_dim");
  if (rule.has_rotary_pairs) source.head_rows = given > 0 ? given : integer_at(params_, "dim") / heads;
  require<CheckpointError>(!rule.has_rotary_pairs || (source.head_rows > 0 && source.head_rows % 2 == 0 &&
                                                      source.tensor.shape[0] % source.head_rows == 0),
                           "[hugging_face] {}: {} rows of {} do not form heads of an even number of {} rows, which dim "
                           "and n_heads of {} say. Fetch the files again, all of one version.",
                           directory_, source.tensor.shape[0], name, source.head_rows, kMetaParamsFile);
  std::erase(unknown_, name);
  tensors_.emplace(with_layer(rule.tensor, layer), std::move(source));
}

Json MetaFolder::config() const {
  const auto rows_of = [&](std::string_view name) { return contains(name) ? tensor(name).shape[0] : 0; };
  Json config = hugging_face::meta_llama_config(params_,
                                                {.vocab_size = rows_of("model.embed_tokens.weight"),
                                                 .ffn_hidden_size = rows_of("model.layers.0.mlp.gate_proj.weight"),
                                                 .has_output_layer = contains("lm_head.weight")},
                                                join_path(directory_, kMetaParamsFile));
  if (!tensors_.empty()) config["dtype"] = name_of(tensors_.begin()->second.tensor.type);
  return config;
}

std::vector<std::string> MetaFolder::names() const {
  std::vector<std::string> names;
  names.reserve(tensors_.size());
  for (const auto& [name, source] : tensors_) names.push_back(name);
  names.insert(names.end(), unknown_.begin(), unknown_.end());
  return names;
}

const MetaFolder::Source& MetaFolder::at(std::string_view name) const {
  const auto found = tensors_.find(name);
  require<CheckpointError>(found != tensors_.end(), "[hugging_face] {} has no tensor for {}. Fetch the files again.",
                           directory_, name);
  return found->second;
}

void MetaFolder::read_box(std::string_view name, const Box& box, std::byte* destination,
                          const Shape& destination_strides) const {
  const Source& source = at(name);
  if (source.head_rows > 0)
    read_permuted(source, box, destination, destination_strides);
  else
    read_parts(source, box, destination, destination_strides);
}

void MetaFolder::read_parts(const Source& source, const Box& box, std::byte* destination, const Shape& strides) const {
  const int64_t size = source.parts.front().shape[source.split_dim];
  for (size_t i = 0; i < source.parts.size(); ++i) {
    Box part = Box::whole(source.parts[i].shape);
    part.offsets[source.split_dim] = static_cast<int64_t>(i) * size;
    std::optional<Box> common = intersection(part, box);
    if (!common) continue;
    const int64_t first = element_offset(common->offsets, strides) - element_offset(box.offsets, strides);
    common->offsets[source.split_dim] -= part.offsets[source.split_dim];
    files_[i].file->read_box(source.parts[i], *common, destination + first * size_of(source.tensor.type), strides,
                             /*verify=*/false);
  }
}

void MetaFolder::read_permuted(const Source& source, const Box& box, std::byte* destination,
                               const Shape& strides) const {
  const int64_t d = source.head_rows, bytes = size_of(source.tensor.type), end = box.offsets[0] + box.sizes[0];
  for (int64_t head = box.offsets[0] / d; head * d < end; ++head) {
    Box whole = box;
    whole.offsets[0] = head * d;
    whole.sizes[0] = d;
    const Shape own = whole.sizes.contiguous_strides();
    std::vector<std::byte> rows(static_cast<size_t>(whole.sizes.num_elements() * bytes));
    read_parts(source, whole, rows.data(), own);
    for (int64_t row = std::max(box.offsets[0], head * d); row < std::min(end, (head + 1) * d); ++row) {
      const int64_t half = row % d / (d / 2), pair = row % d % (d / 2);
      const std::byte* from = rows.data() + (2 * pair + half) * own[0] * bytes;
      std::byte* to = destination + (row - box.offsets[0]) * strides[0] * bytes;
      for_each_run(Shape{box.sizes[1]}, Shape{1}, Shape{strides[1]}, [&](int64_t a, int64_t b, int64_t count) {
        std::copy_n(from + a * bytes, count * bytes, to + b * bytes);
      });
    }
  }
}

}  // namespace megatron
