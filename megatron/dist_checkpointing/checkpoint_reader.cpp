#include "megatron/dist_checkpointing/checkpoint_reader.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "megatron/base/error.h"
#include "megatron/base/word_list.h"
#include "megatron/dist_checkpointing/checkpoint_files.h"
#include "megatron/dist_checkpointing/megatron_names.h"

namespace megatron {
namespace {

/// Items up to this size are read by one access; of larger ones only what is needed.
constexpr int64_t kWholeItemBytes = 1 << 20;

/// A part of a file, as a file.
class FileSlice final : public ReadableFile {
 public:
  FileSlice(std::shared_ptr<ReadableFile> file, const StoredItem& item) : file_(std::move(file)), item_(item) {}
  int64_t size() const override { return item_.bytes; }
  void read(int64_t offset, std::span<std::byte> out) const override { file_->read(item_.offset + offset, out); }

 private:
  std::shared_ptr<ReadableFile> file_;
  StoredItem item_;
};

void require_type(std::string_view key, const GlobalTensor& tensor, DType wanted) {
  require<CheckpointError>(info(tensor.type).dtype == wanted,
                           "[checkpoint] {} is stored as {}, but {} is wanted. Read it as it is stored and convert it.",
                           key, tensor.type, wanted);
}

}  // namespace

CheckpointReader::CheckpointReader(const FileSystem& files, std::string directory, Verify verify)
    : files_(files), directory_(std::move(directory)), verify_(verify) {
  // Megatron's order. A save in the form torch has both while its ranks write their folders from the whole tensors.
  if (!files.exists(join_path(directory_, kBackendFile)) && LegacyCheckpoint::is_in(files, directory_)) {
    legacy_ = std::make_shared<const LegacyCheckpoint>(files, directory_);
    metadata_ = legacy_->metadata();
  } else {
    metadata_ = read_index(files, directory_);
  }
}

const BucketedOptimizer& CheckpointReader::buckets() const {
  if (!buckets_) buckets_ = bucketed_keys::are_in(metadata_) ? BucketedOptimizer(*this) : BucketedOptimizer();
  return *buckets_;
}

const CheckpointMetadata& CheckpointReader::whole_tensors() const {
  if (buckets().tensors().empty()) return metadata_;
  if (whole_.tensors.empty()) {
    whole_ = metadata_;
    std::erase_if(whole_.tensors,
                  [](const auto& entry) { return entry.first.find("optimizer.distributed.") != std::string::npos; });
    whole_.tensors.insert(buckets().tensors().begin(), buckets().tensors().end());
  }
  return whole_;
}

const GlobalTensor* CheckpointReader::find_tensor(std::string_view key) const {
  const auto stored = metadata_.tensors.find(key);
  if (stored != metadata_.tensors.end()) return &stored->second;
  const auto& in_buckets = buckets().tensors();
  const auto found = in_buckets.find(key);
  return found == in_buckets.end() ? nullptr : &found->second;
}

bool CheckpointReader::has_tensor(std::string_view key) const { return find_tensor(key) != nullptr; }

const GlobalTensor& CheckpointReader::tensor(std::string_view key) const {
  const GlobalTensor* found = find_tensor(key);
  if (!found) {
    std::vector<std::string_view> near;
    auto next = metadata_.tensors.lower_bound(key);
    if (next != metadata_.tensors.begin()) near.push_back(std::prev(next)->first);
    if (next != metadata_.tensors.end()) near.push_back(next->first);
    throw CheckpointError(
        fmt::format("[checkpoint] {} has no tensor {}; it has {}, among them {}. The model must be the one that was "
                    "saved: compare the flags that define it.",
                    directory_, key, metadata_.tensors.size(), joined(near, " and ")));
  }
  if (tiled_.contains(key)) return *found;
  if (const auto problem = found->tiling_problem())
    throw CheckpointError(fmt::format("[checkpoint] {}: {} {} is not stored whole: {}. Load another checkpoint.",
                                      directory_, key, found->shape, *problem));
  tiled_.emplace(key);
  return *found;
}

std::unique_ptr<ReadableFile> CheckpointReader::open_range(std::string_view key, const StoredItem& item) const {
  if (!open_file_ || open_name_ != item.file) {
    try {
      open_file_ = files_.open_for_reading(join_path(directory_, item.file));
    } catch (const IoError& error) {
      throw CheckpointError(
          fmt::format("[checkpoint] {} in {} cannot be read: {}. Restore the file or load another "
                      "checkpoint.",
                      key, directory_, error.what()));
    }
    open_name_ = item.file;
  }
  require<CheckpointError>(item.offset + item.bytes <= open_file_->size(),
                           "[checkpoint] {} is cut short: it has {} bytes, {} ends at {}. Restore it or load another "
                           "checkpoint.",
                           join_path(directory_, item.file), open_file_->size(), key, item.offset + item.bytes);
  return std::make_unique<FileSlice>(open_file_, item);
}

TorchFile CheckpointReader::open_item(std::string_view key, const StoredItem& item) const {
  const std::string source = fmt::format("{} ({})", join_path(directory_, item.file), key);
  auto file = open_range(key, item);
  if (item.bytes > kWholeItemBytes) return TorchFile(std::move(file), source);
  std::string content(static_cast<size_t>(item.bytes), '\0');
  file->read(0, std::as_writable_bytes(std::span(content)));
  return TorchFile(std::make_unique<MemoryFile>(std::move(content)), source);
}

TorchFile CheckpointReader::open_chunk(std::string_view key, const GlobalTensor& tensor,
                                       const StoredChunk& chunk) const {
  TorchFile file = open_item(key, chunk.item);
  const auto stored = torch_tensor(file.root());
  require<CheckpointError>(stored && stored->shape == chunk.box.sizes && stored->type == tensor.type,
                           "[checkpoint] {} is damaged: it does not hold the {} chunk of {} that the index names. "
                           "Restore it or load another checkpoint.",
                           file.source(), tensor.type, chunk.box.sizes);
  return file;
}

void CheckpointReader::read_box(std::string_view key, const GlobalTensor& tensor, const Box& wanted,
                                std::byte* destination, const Shape& strides) const {
  for (size_t i = 0; i < tensor.chunks.size(); ++i) {
    const StoredChunk& chunk = tensor.chunks[i];
    const auto common = intersection(chunk.box, wanted);
    if (!common) continue;
    Box within_chunk = *common;
    Shape within_wanted = common->offsets;
    for (int dim = 0; dim < within_wanted.rank(); ++dim) {
      within_chunk.offsets[dim] -= chunk.box.offsets[dim];
      within_wanted[dim] -= wanted.offsets[dim];
    }
    read_chunk(key, tensor, i, within_chunk,
               destination + element_offset(within_wanted, strides) * size_of(tensor.type), strides);
  }
}

void CheckpointReader::read_chunk(std::string_view key, const GlobalTensor& tensor, size_t chunk, const Box& box,
                                  std::byte* destination, const Shape& strides) const {
  const bool verify = verify_ == Verify::kChecksums;
  if (legacy_) return legacy_->read_box(key, chunk, box, destination, strides, verify);
  if (!metadata_.tensors.contains(key))
    return read_from_bucket(buckets().source(key, chunk), tensor.chunks[chunk].box, box, size_of(tensor.type),
                            destination, strides);
  const TorchFile file = open_chunk(key, tensor, tensor.chunks[chunk]);
  file.read_box(*torch_tensor(file.root()), box, destination, strides, verify);
}

/// @param box  within the chunk.
void CheckpointReader::read_from_bucket(const BucketedOptimizer::Source& source, const Box& chunk, const Box& box,
                                        int64_t element_bytes, std::byte* destination, const Shape& strides) const {
  const Shape chunk_strides = chunk.sizes.contiguous_strides();
  Shape last = box.offsets;
  for (int dim = 0; dim < last.rank(); ++dim) last[dim] += box.sizes[dim] - 1;
  const int64_t first = element_offset(box.offsets, chunk_strides);
  const int64_t count = element_offset(last, chunk_strides) + 1 - first;
  std::vector<std::byte> elements(static_cast<size_t>(count * element_bytes));
  read_box(source.key, Box{{source.first + first}, {count}}, elements.data());
  for_each_run(box.sizes, chunk_strides, strides, [&](int64_t from, int64_t to, int64_t length) {
    std::memcpy(destination + to * element_bytes, elements.data() + from * element_bytes,
                static_cast<size_t>(length * element_bytes));
  });
}

std::optional<ElementType> CheckpointReader::type_of(std::string_view key) const {
  const GlobalTensor* found = find_tensor(key);
  return found ? std::optional(found->type) : std::nullopt;
}

StoredPlace CheckpointReader::place_of(std::string_view key, const Shape& offsets) const {
  const GlobalTensor* found = find_tensor(key);
  if (!found) return {};
  Shape one = offsets;
  for (int dim = 0; dim < one.rank(); ++dim) one[dim] = 1;
  for (const StoredChunk& chunk : found->chunks)
    if (intersection(chunk.box, {offsets, one})) return {chunk.item.file, chunk.item.offset};
  return {};
}

void CheckpointReader::read_tensor(std::string_view key, const Shape& global_shape, const Shape& offsets,
                                   const View& destination) const {
  const GlobalTensor& stored = tensor(key);
  require_type(key, stored, destination.dtype);
  require<CheckpointError>(
      stored.shape == global_shape,
      "[checkpoint] {}: {} is stored with shape {}, the model has {}. Build the model with the flags "
      "that it was saved with.",
      directory_, key, stored.shape, global_shape);
  const Box wanted{offsets, destination.shape};
  require<ShapeError>(contains(stored.shape, wanted), "[checkpoint] {} of shape {} has no part of shape {} at {}", key,
                      stored.shape, destination.shape, offsets);
  read_box(key, stored, wanted, static_cast<std::byte*>(destination.data), destination.strides);
}

void CheckpointReader::read_resized_tensor(std::string_view key, const Shape& offsets, const View& destination) const {
  const GlobalTensor& stored = tensor(key);
  require_type(key, stored, destination.dtype);
  require<CheckpointError>(stored.shape.rank() == destination.shape.rank(),
                           "[checkpoint] {}: {} is stored with {} dimensions, {} are wanted", directory_, key,
                           stored.shape.rank(), destination.shape.rank());
  fill_zero(destination);
  read_box(key, stored, {offsets, destination.shape}, static_cast<std::byte*>(destination.data), destination.strides);
}

void CheckpointReader::read_box(std::string_view key, const Box& box, std::byte* destination) const {
  const GlobalTensor& stored = tensor(key);
  require<ShapeError>(contains(stored.shape, box), "[checkpoint] {} of shape {} has no part {}", key, stored.shape,
                      box);
  read_box(key, stored, box, destination, box.sizes.contiguous_strides());
}

std::vector<std::byte> CheckpointReader::read_whole_tensor(std::string_view key) const {
  const GlobalTensor& stored = tensor(key);
  std::vector<std::byte> bytes(static_cast<size_t>(stored.shape.num_elements() * size_of(stored.type)));
  read_box(key, Box::whole(stored.shape), bytes.data());
  return bytes;
}

TorchFile CheckpointReader::read_object(std::string_view key) const {
  const auto found = metadata_.objects.find(key);
  require<CheckpointError>(found != metadata_.objects.end(), "[checkpoint] {} has no object {}", directory_, key);
  return open_item(key, found->second);
}

CheckpointReader::CommonState CheckpointReader::read_common_state() const {
  if (legacy_) {
    const std::string first = LegacyCheckpoint::first_file(files_, directory_);
    return {TorchFile(files_.open_for_reading(first), first)};
  }
  const std::string legacy = join_path(directory_, kCommonStateFile);
  if (files_.exists(legacy)) return {TorchFile(files_.open_for_reading(legacy), legacy)};
  return {read_object(kCommonStateKey)};
}

bool CheckpointReader::has_common_state() const {
  return legacy_ || has_object(kCommonStateKey) || files_.exists(join_path(directory_, kCommonStateFile));
}

const pickle::Object& CheckpointReader::CommonState::state() const {
  const pickle::Object& root = file.root();  // objects of a distributed checkpoint are in a list of one
  const pickle::Object& state =
      root.kind() == pickle::Kind::kList && root.items().size() == 1 ? *root.items()[0] : root;
  require<CheckpointError>(state.kind() == pickle::Kind::kDict, "[checkpoint] {} holds no dict", file.source());
  return state;
}

void CheckpointReader::check_files() const {
  if (legacy_) return;                                               // all of them are open
  std::map<std::string, std::pair<int64_t, std::string_view>> ends;  // of the last item in each file, and its key
  const auto add = [&](const std::string& key, const StoredItem& item) {
    auto& last = ends[item.file];
    last = std::max(last, {item.offset + item.bytes, key});
  };
  for (const auto& [key, item] : metadata_.objects) add(key, item);
  for (const auto& [key, tensor] : metadata_.tensors)
    for (const StoredChunk& chunk : tensor.chunks) add(key, chunk.item);
  for (const auto& [name, last] : ends) open_range(last.second, {name, 0, last.first});
}

std::vector<std::string> CheckpointReader::verify(const std::function<void(int64_t bytes)>& on_bytes) const {
  if (legacy_) return legacy_->verify();
  std::vector<std::string> problems;
  const auto attempt = [&](auto&& check) {
    try {
      check();
    } catch (const Error& error) {
      problems.emplace_back(error.what());
    }
  };
  const auto attempt_item = [&](const StoredItem& item, auto&& check) {
    attempt(check);
    if (on_bytes) on_bytes(item.bytes);
  };
  for (const auto& entry : metadata_.objects)
    attempt_item(entry.second, [&] { open_item(entry.first, entry.second).verify(); });
  for (const auto& entry : metadata_.tensors) {
    attempt([&] { tensor(entry.first); });
    for (const StoredChunk& chunk : entry.second.chunks)
      if (!chunk.box.is_empty())
        attempt_item(chunk.item, [&] { open_chunk(entry.first, entry.second, chunk).verify(); });
  }
  return problems;
}

}  // namespace megatron
