#include "megatron/dist_checkpointing/safetensors.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "megatron/base/error.h"
#include "megatron/dist_checkpointing/payload_stream.h"
#include "megatron/dist_checkpointing/read_ahead.h"
#include "megatron/dist_checkpointing/torch_tensor.h"

namespace megatron {
namespace {

using nlohmann::json;

constexpr int64_t kLengthBytes = 8, kMaxHeaderBytes = 100'000'000, kHeaderAlignment = 8;
constexpr const char* kMetadataKey = "__metadata__";

/// Refuses what JSON parsers let pass and the format does not: a byte order mark, NUL as the end, fields given twice.
json parse_header(const std::string& text) {
  require<CheckpointError>(!text.starts_with("\xEF\xBB\xBF"), "the header begins with a byte order mark");
  require<CheckpointError>(text.find('\0') == std::string::npos, "the header holds a NUL character");
  std::set<std::string> fields;  // of the tensor that is being read
  bool has_metadata = false;
  const auto check_duplicates = [&](int depth, json::parse_event_t event, json& parsed) {
    if (event != json::parse_event_t::key) return true;
    if (depth == 1) fields.clear();
    const auto& key = parsed.get_ref<const std::string&>();
    if (depth == 1 && key == kMetadataKey)
      require<CheckpointError>(!std::exchange(has_metadata, true), "the header has two {}", kMetadataKey);
    const bool counts = depth == 2 && (key == "dtype" || key == "shape" || key == "data_offsets");
    require<CheckpointError>(!counts || fields.insert(key).second, "a tensor has two fields \"{}\"", key);
    return true;
  };
  try {
    json header = json::parse(text, check_duplicates);
    require<CheckpointError>(header.is_object(), "the header is no JSON object");
    return header;
  } catch (const json::exception& error) {
    throw CheckpointError(fmt::format("the header is no valid JSON: {}", error.what()));
  }
}

const json& field(const json& described, const char* name) {
  const auto found = described.find(name);
  require<CheckpointError>(found != described.end(), "a tensor has no \"{}\"", name);
  return *found;
}

std::vector<int64_t> parse_sizes(const json& values, const char* what) {
  require<CheckpointError>(values.is_array(), "\"{}\" is no list", what);
  std::vector<int64_t> sizes;
  for (const json& value : values) {
    require<CheckpointError>(value.is_number_unsigned() && value.get<uint64_t>() <= INT64_MAX,
                             "\"{}\" holds {}, which is no size", what, value.dump());
    sizes.push_back(value.get<int64_t>());
  }
  return sizes;
}

/// Offsets are still relative to the end of the header.
SafetensorsFile::Tensor parse_tensor(const json& described) {
  require<CheckpointError>(described.is_object(), "a tensor is no JSON object");
  const json& dtype = field(described, "dtype");
  const auto type = dtype.is_string() ? element_type_of_safetensors(dtype.get<std::string>()) : std::nullopt;
  require<CheckpointError>(type.has_value(), "dtype {} is unknown", dtype.dump());
  const auto sizes = parse_sizes(field(described, "shape"), "shape");
  const auto offsets = parse_sizes(field(described, "data_offsets"), "data_offsets");
  require<CheckpointError>(offsets.size() == 2 && offsets[0] <= offsets[1], "data_offsets are not a begin and an end");
  require<NotSupported>(sizes.size() <= Shape::kMaxRank, "[safetensors] {} dimensions; at most {} are supported",
                        sizes.size(), Shape::kMaxRank);
  SafetensorsFile::Tensor tensor{*type, Shape(std::span(sizes)), offsets[0], offsets[1] - offsets[0]};
  int64_t bits = 0;
  const bool overflows = __builtin_mul_overflow(checked_num_elements(tensor.shape), info(*type).bits, &bits);
  require<CheckpointError>(!overflows && bits % 8 == 0 && bits / 8 == tensor.bytes,
                           "shape {} of {} does not fill {} bytes", tensor.shape, *type, tensor.bytes);
  return tensor;
}

void require_contiguous(const std::map<std::string, SafetensorsFile::Tensor, std::less<>>& tensors, int64_t end) {
  std::vector<std::pair<int64_t, const std::pair<const std::string, SafetensorsFile::Tensor>*>> sorted;
  sorted.reserve(tensors.size());
  for (const auto& entry : tensors) sorted.emplace_back(entry.second.offset, &entry);
  std::ranges::sort(sorted, {}, [](const auto& item) { return std::pair(item.first, item.second->second.bytes); });
  int64_t position = 0;
  for (const auto& [offset, entry] : sorted) {
    require<CheckpointError>(offset == position, "tensor {} begins at byte {}, the one before it ends at {}",
                             entry->first, offset, position);
    position += entry->second.bytes;
  }
  require<CheckpointError>(position == end, "the tensors have {} bytes, the file has {} for them", position, end);
}

}  // namespace

SafetensorsFile::SafetensorsFile(std::unique_ptr<ReadableFile> file, std::string source)
    : file_(std::move(file)), source_(std::move(source)) {
  try {
    require<CheckpointError>(file_->size() >= kLengthBytes, "it has {} bytes", file_->size());
    uint64_t length = 0;
    file_->read(0, std::as_writable_bytes(std::span(&length, 1)));
    const int64_t available = file_->size() - kLengthBytes;
    require<CheckpointError>(length <= kMaxHeaderBytes && static_cast<int64_t>(length) <= available,
                             "a header of {} bytes is announced, {} bytes follow", length, available);
    std::string text(length, '\0');
    file_->read(kLengthBytes, std::as_writable_bytes(std::span(text)));
    const json header = parse_header(text);
    for (const auto& [name, described] : header.items()) {
      if (name != kMetadataKey) {
        tensors_[name] = parse_tensor(described);
        continue;
      }
      require<CheckpointError>(described.is_object() || described.is_null(), "{} is no JSON object", kMetadataKey);
      for (const auto& [key, value] : described.items()) {
        require<CheckpointError>(value.is_string(), "{} holds {}, which is no text", kMetadataKey, value.dump());
        metadata_[key] = value.get<std::string>();
      }
    }
    const int64_t data_offset = kLengthBytes + static_cast<int64_t>(length);
    require_contiguous(tensors_, file_->size() - data_offset);
    for (auto& [name, tensor] : tensors_) tensor.offset += data_offset;
  } catch (const CheckpointError& error) {
    throw CheckpointError(
        fmt::format("[safetensors] {} is damaged or incomplete: {}. Fetch the file again.", source_, error.what()));
  }
}

const SafetensorsFile::Tensor& SafetensorsFile::tensor(std::string_view name) const {
  const auto found = tensors_.find(name);
  require<CheckpointError>(found != tensors_.end(), "[safetensors] {} has no tensor {}", source_, name);
  return found->second;
}

std::vector<std::byte> SafetensorsFile::read(std::string_view name) const {
  const Tensor& stored = tensor(name);
  std::vector<std::byte> bytes(static_cast<size_t>(stored.bytes));
  file_->read(stored.offset, bytes);
  return bytes;
}

void SafetensorsFile::read_box(std::string_view name, const Box& box, std::byte* destination,
                               const Shape& destination_strides) const {
  const Tensor& stored = tensor(name);
  require<ShapeError>(contains(stored.shape, box), "[safetensors] {} of shape {} has no part {}", name, stored.shape,
                      box);
  const int64_t element_bytes = size_of(stored.type);
  const Shape strides = stored.shape.contiguous_strides();
  const int64_t first = element_offset(box.offsets, strides);
  PayloadStream stream(*file_, stored.offset, stored.bytes, /*checksum=*/false);
  for_each_run(box.sizes, strides, destination_strides, [&](int64_t a, int64_t b, int64_t count) {
    stream.copy((first + a) * element_bytes,
                {destination + b * element_bytes, static_cast<size_t>(count * element_bytes)});
  });
}

void write_safetensors(WritableFile& file, std::vector<SafetensorsItem> tensors,
                       const std::map<std::string, std::string>& metadata) {
  std::ranges::sort(tensors, [](const SafetensorsItem& a, const SafetensorsItem& b) {
    return a.type != b.type ? a.type > b.type : a.name < b.name;
  });
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header[kMetadataKey] = metadata;
  int64_t offset = 0;
  for (const SafetensorsItem& item : tensors) {
    require<NotSupported>(!info(item.type).safetensors.empty(),
                          "[safetensors] {} is {}, which the format does not know", item.name, item.type);
    const int64_t bytes = item.source->bytes();
    require<ShapeError>(item.shape.num_elements() * info(item.type).bits == bytes * 8,
                        "[safetensors] {} of {} {} has {} bytes", item.name, item.type, item.shape, bytes);
    header[item.name] = {{"dtype", info(item.type).safetensors},
                         {"shape", std::vector<int64_t>(item.shape.begin(), item.shape.end())},
                         {"data_offsets", {offset, offset + bytes}}};
    offset += bytes;
  }
  std::string text = header.dump();
  text.resize((text.size() + kHeaderAlignment - 1) / kHeaderAlignment * kHeaderAlignment, ' ');
  const uint64_t length = text.size();
  file.append(std::as_bytes(std::span(&length, 1)));
  file.append(std::as_bytes(std::span(text)));
  std::vector<TensorSource*> sources;
  sources.reserve(tensors.size());
  for (const SafetensorsItem& item : tensors) sources.push_back(item.source.get());
  ReadAhead ahead(sources);
  for (TensorSource* source : sources) {
    ahead.next();
    for (int64_t begin = 0; begin < source->bytes(); begin += PayloadStream::kPieceBytes)
      file.append(source->read(begin, std::min(PayloadStream::kPieceBytes, source->bytes() - begin)));
    source->release();
  }
}

}  // namespace megatron
