#include "megatron/dist_checkpointing/torch_file.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <unordered_set>

#include "megatron/base/error.h"
#include "megatron/core/box.h"
#include "megatron/dist_checkpointing/payload_stream.h"
#include "megatron/dist_checkpointing/pickle/pickle_writer.h"

namespace megatron {
namespace {

/// A tensor may repeat its storage (stride 0) up to this size; beyond it only a hostile file does.
constexpr int64_t kMaxBroadcastBytes = int64_t{1} << 30;

void copy_box(const std::string& storage, const TorchTensor& tensor, const Box& box, std::byte* destination,
              const Shape& destination_strides) {
  const int64_t element_bytes = size_of(tensor.type);
  const int64_t first = tensor.offset + element_offset(box.offsets, tensor.strides);
  for_each_run(box.sizes, tensor.strides, destination_strides, [&](int64_t a, int64_t b, int64_t count) {
    std::memcpy(destination + b * element_bytes, storage.data() + (first + a) * element_bytes,
                static_cast<size_t>(count * element_bytes));
  });
}

/// 20 digits from the names of the records and 20 from their contents, as torch's writer computes them with GNU's
/// standard library. Nobody reads it; equal objects get equal files.
std::string serialization_id(const std::vector<ZipEntry>& entries, size_t folder_bytes) {
  const auto combine = [](uint64_t seed, uint64_t value) {
    return seed ^ (value + 0x9e3779b9 + (seed << 6) + (seed >> 2));
  };
  uint64_t content = 0, names = 0;
  std::unordered_set<std::string> records;  // its order is part of the value
  for (const ZipEntry& entry : entries) {
    records.insert(entry.name.substr(folder_bytes));
    if (entry.bytes > 0) content = combine(content, entry.crc);
  }
  for (const std::string& record : records) names = combine(names, std::hash<std::string>()(record));
  return fmt::format("{:020}{:020}", names, content);
}

}  // namespace

TorchFile::TorchFile(std::unique_ptr<ReadableFile> file, std::string source)
    : file_(std::move(file)), source_(std::move(source)), zip_(*file_, source_) {
  constexpr std::string_view kObject = "/data.pkl";
  const auto found = std::ranges::find_if(zip_.entries(), [&](const auto& e) { return e.name.ends_with(kObject); });
  require<CheckpointError>(found != zip_.entries().end(),
                           "[torch file] {} has no data.pkl: it was not written by torch.save", source_);
  folder_ = found->name.substr(0, found->name.size() - kObject.size() + 1);
  if (const ZipEntry* order = zip_.find(folder_ + "byteorder"))
    require<NotSupported>(zip_.read(*order) == "little", "[torch file] {} was written on a big-endian machine",
                          source_);
  const std::string pickled = zip_.read(*found);
  pickle_ = pickle::read_pickle(std::as_bytes(std::span(pickled)), source_);
}

std::string TorchFile::storage_record(std::string_view name) const { return fmt::format("{}data/{}", folder_, name); }

std::vector<std::byte> TorchFile::read_storage(std::string_view name) const {
  const ZipEntry* entry = zip_.find(storage_record(name));
  require<CheckpointError>(entry != nullptr, "[torch file] {} lacks storage {}", source_, name);
  const std::string content = zip_.read(*entry);
  const auto bytes = std::as_bytes(std::span(content));
  return {bytes.begin(), bytes.end()};
}

const ZipEntry& TorchFile::storage_entry(const TorchTensor& tensor) const {
  const ZipEntry* entry = zip_.find(storage_record(tensor.storage));
  require<CheckpointError>(entry != nullptr, "[torch file] {} lacks storage {}", source_, tensor.storage);
  require<CheckpointError>(entry->bytes == tensor.storage_bytes,
                           "[torch file] storage {} of {} has {} bytes, its tensors expect {}", tensor.storage, source_,
                           entry->bytes, tensor.storage_bytes);
  return *entry;
}

std::vector<std::byte> TorchFile::read(const TorchTensor& tensor) const {
  require<NotSupported>(tensor.bytes() <= std::max(tensor.storage_bytes, kMaxBroadcastBytes),
                        "[torch file] {}: a tensor of {} bytes repeats a storage of {}", source_, tensor.bytes(),
                        tensor.storage_bytes);
  const std::string storage = zip_.read(storage_entry(tensor));
  std::vector<std::byte> elements(static_cast<size_t>(tensor.bytes()));
  copy_box(storage, tensor, Box::whole(tensor.shape), elements.data(), tensor.shape.contiguous_strides());
  return elements;
}

void TorchFile::read_box(const TorchTensor& tensor, const Box& box, std::byte* destination,
                         const Shape& destination_strides, bool verify) const {
  const ZipEntry& entry = storage_entry(tensor);
  if (!tensor.is_contiguous()) return copy_box(zip_.read(entry), tensor, box, destination, destination_strides);
  const int64_t element_bytes = size_of(tensor.type);
  const Shape strides = tensor.shape.contiguous_strides();
  const int64_t first = tensor.offset + element_offset(box.offsets, strides);
  PayloadStream stream(*file_, zip_.payload_offset(entry), entry.bytes, verify);
  for_each_run(box.sizes, strides, destination_strides, [&](int64_t a, int64_t b, int64_t count) {
    stream.copy((first + a) * element_bytes,
                {destination + b * element_bytes, static_cast<size_t>(count * element_bytes)});
  });
  if (verify) zip_.require_checksum(entry, stream.finish());
}

void TorchFile::verify() const {
  for (const ZipEntry& entry : zip_.entries()) {
    PayloadStream stream(*file_, zip_.payload_offset(entry), entry.bytes, true);
    zip_.require_checksum(entry, stream.finish());
  }
}

pickle::Object& TorchObject::add_tensor(const ConstView& host) {
  return add_tensor(element_type_of(host.dtype), host.shape, make_owned_source(gather(host)));
}

pickle::Object& TorchObject::add_tensor(ElementType type, const Shape& shape, std::unique_ptr<TensorSource> source) {
  const int64_t element_bytes = size_of(type);
  require<ShapeError>(source->bytes() == shape.num_elements() * element_bytes,
                      "[torch file] {} elements of {} need {} bytes, their source has {}", shape, type,
                      shape.num_elements() * element_bytes, source->bytes());
  const auto& names = info(type);
  const bool is_typed = !names.storage.empty();
  const auto sizes = [&](const Shape& values) -> pickle::Object& {
    std::vector<pickle::Object*> items;
    for (const int64_t value : values) items.push_back(&graph.integer(value));
    return graph.tuple(std::move(items));
  };
  pickle::Object& storage = graph.persistent(graph.tuple(
      {&shared("", "storage"), is_typed ? &shared("torch", names.storage) : &shared("torch.storage", "UntypedStorage"),
       &graph.text(fmt::format("{}", storages_.size())), &shared("", "cpu"),
       &graph.integer(source->bytes() / (is_typed ? element_bytes : 1))}));
  std::vector<pickle::Object*> arguments = {&storage,
                                            &graph.integer(0),
                                            &sizes(shape),
                                            &sizes(shape.contiguous_strides()),
                                            &graph.boolean(false),
                                            &graph.reduce(shared("collections", "OrderedDict"), {})};
  if (!is_typed) arguments.push_back(&shared("torch", names.torch));
  storages_.push_back(std::move(source));
  return graph.reduce(shared("torch._utils", is_typed ? "_rebuild_tensor_v2" : "_rebuild_tensor_v3"),
                      std::move(arguments));
}

pickle::Object& TorchObject::shared(std::string_view module, std::string_view name) {
  pickle::Object*& object = shared_[{std::string(module), std::string(name)}];
  if (object == nullptr)
    object = module.empty() ? &graph.text(std::string(name)) : &graph.global(std::string(module), std::string(name));
  return *object;
}

int64_t TorchObject::payload_bytes() const {
  int64_t bytes = 0;
  for (const auto& storage : storages_) bytes += storage->bytes();
  return bytes;
}

void TorchObject::stage(std::span<std::byte> buffer, const std::stop_token& stop) {
  for (auto& storage : storages_) {
    const auto part = buffer.first(static_cast<size_t>(storage->bytes()));
    storage->copy_to(part);
    storage = make_staged_source(part, stop);
    buffer = buffer.subspan(part.size());
  }
}

int64_t write_torch_file(WritableFile& file, const TorchObject& object, std::string_view folder) {
  ZipWriter zip(file);
  const auto named = [&](std::string_view record) { return fmt::format("{}/{}", folder, record); };
  zip.add(named("data.pkl"), pickle::write_pickle(*object.root, pickle::Protocol::kTwo));
  zip.add(named(".format_version"), "1");
  zip.add(named(".storage_alignment"), fmt::format("{}", ZipWriter::kAlignmentBytes));
  zip.add(named("byteorder"), "little");
  for (size_t i = 0; i < object.storages().size(); ++i) {
    TensorSource& source = *object.storages()[i];
    zip.begin(named(fmt::format("data/{}", i)), source.bytes());
    for (int64_t begin = 0; begin < source.bytes(); begin += PayloadStream::kPieceBytes)
      zip.append(source.read(begin, std::min(PayloadStream::kPieceBytes, source.bytes() - begin)));
    zip.end();
    source.release();
  }
  zip.add(named("version"), "3\n");
  zip.add(named(".data/serialization_id"), serialization_id(zip.entries(), folder.size() + 1));
  return zip.finish();
}

}  // namespace megatron
