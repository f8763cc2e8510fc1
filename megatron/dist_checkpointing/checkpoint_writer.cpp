#include "megatron/dist_checkpointing/checkpoint_writer.h"

#include <algorithm>
#include <exception>
#include <optional>
#include <thread>

#include "megatron/base/error.h"
#include "megatron/base/thread_name.h"
#include "megatron/base/thread_start.h"
#include "megatron/dist_checkpointing/checkpoint_files.h"
#include "megatron/dist_checkpointing/read_ahead.h"
#include "megatron/dist_checkpointing/sha256.h"

namespace megatron {
namespace {

constexpr int64_t kItemOverheadBytes = 2048;  // of zip records and pickle around a tensor: 1.5 KiB and its name

/// Hashes what is written, so that nothing has to be read back.
class HashedFile final : public WritableFile {
 public:
  HashedFile(std::unique_ptr<WritableFile> file, bool hashes) : file_(std::move(file)), hashes_(hashes) {}
  void append(std::span<const std::byte> bytes) override {
    if (hashes_) hash_.add(bytes);
    file_->append(bytes);
  }
  void sync() override { file_->sync(); }
  void close() override { file_->close(); }
  std::string hex() { return hashes_ ? hash_.hex() : ""; }

 private:
  std::unique_ptr<WritableFile> file_;
  bool hashes_;
  Sha256 hash_;
};

}  // namespace

CheckpointWriter::CheckpointWriter(FileSystem& files, std::string directory, int rank, Integrity integrity)
    : files_(files), directory_(std::move(directory)), rank_(rank), integrity_(integrity) {}

int64_t CheckpointWriter::Item::payload_bytes() const { return object.payload_bytes(); }

void CheckpointWriter::add_tensor(std::string key, const Shape& global_shape, const Shape& offsets,
                                  const ConstView& chunk) {
  add_tensor(std::move(key), element_type_of(chunk.dtype), global_shape, {offsets, chunk.shape},
             make_view_source(chunk));
}

void CheckpointWriter::add_tensor(std::string key, ElementType type, const Shape& global_shape, const Box& box,
                                  std::unique_ptr<TensorSource> chunk) {
  require<ShapeError>(contains(global_shape, box), "[checkpoint] {} of shape {} has no part of shape {} at {}", key,
                      global_shape, box.sizes, box.offsets);
  // The index knows chunks by where they begin: an empty one would hide the one after it.
  if (box.is_empty() && global_shape.num_elements() > 0) return;
  Item& item = items_.emplace_back();
  item.key = std::move(key);
  item.is_tensor = true;
  item.described = {.type = type, .shape = global_shape, .chunks = {}};
  item.box = box;
  item.object.root = &item.object.add_tensor(type, box.sizes, std::move(chunk));
}

void CheckpointWriter::add_object(std::string key, TorchObject object) {
  require(object.root != nullptr, "[checkpoint] the object {} has no root", key);
  Item& item = items_.emplace_back();
  item.key = std::move(key);
  item.object = std::move(object);
}

int64_t CheckpointWriter::estimated_bytes() const {
  int64_t bytes = 0;
  for (const Item& item : items_) bytes += item.payload_bytes() + kItemOverheadBytes;
  return bytes;
}

int64_t CheckpointWriter::tensor_bytes() const {
  int64_t bytes = 0;
  for (const Item& item : items_)
    if (item.is_tensor) bytes += item.payload_bytes();
  return bytes;
}

void CheckpointWriter::stage(std::span<std::byte> buffer, const std::stop_token& stop) {
  require(std::ssize(buffer) >= tensor_bytes(), "[checkpoint] {} bytes of tensors do not fit into a buffer of {}",
          tensor_bytes(), buffer.size());
  for (Item& item : items_) {
    if (!item.is_tensor) continue;
    const auto part = buffer.first(static_cast<size_t>(item.payload_bytes()));
    item.object.stage(part, stop);
    buffer = buffer.subspan(part.size());
  }
}

CheckpointWriter::Plan CheckpointWriter::plan(int num_files) {
  std::vector<Item*> objects, tensors;
  for (Item& item : items_) (item.is_tensor ? tensors : objects).push_back(&item);
  Plan files(static_cast<size_t>(num_files));
  for (size_t i = 0; i < objects.size(); ++i) files[i % files.size()].push_back(objects[i]);
  std::vector<int64_t> bytes(files.size());
  if (files.size() > 1)
    std::ranges::stable_sort(tensors, std::greater(), [](const Item* item) { return item->payload_bytes(); });
  for (Item* tensor : tensors) {
    const auto emptiest = static_cast<size_t>(std::ranges::min_element(bytes) - bytes.begin());
    files[emptiest].push_back(tensor);
    bytes[emptiest] += tensor->payload_bytes() + kItemOverheadBytes;
  }
  std::erase_if(files, [](const auto& items) { return items.empty(); });
  return files;
}

std::string CheckpointWriter::write_file(int index, const std::vector<Item*>& items, WriteThreads threads) const {
  const std::string name = data_file_name(rank_, index);
  HashedFile file(files_.open_for_writing(join_path(directory_, name), WriteMode::kTruncate),
                  integrity_ == Integrity::kSha256);
  std::optional<ReadAhead> ahead;
  if (threads == WriteThreads::kReadAhead) {
    std::vector<TensorSource*> sources;
    for (const Item* item : items)
      for (const auto& source : item->object.storages()) sources.push_back(source.get());
    ahead.emplace(std::move(sources));
  }
  int64_t offset = 0;
  for (Item* item : items) {
    for (size_t i = 0; ahead && i < item->object.storages().size(); ++i) ahead->next();
    const int64_t bytes = write_torch_file(file, item->object, "archive");
    item->stored = {name, offset, bytes};
    offset += bytes;
  }
  file.sync();
  file.close();
  return file.hex();
}

CheckpointMetadata CheckpointWriter::write(int num_files, WriteThreads threads) {
  require<ConfigError>(num_files >= 1, "[checkpoint] {} files a rank; at least one is needed", num_files);
  const Plan files = plan(num_files);
  std::vector<std::exception_ptr> failures(files.size());
  std::vector<std::string> hashes(files.size());
  const auto write_one = [&](size_t index) {
    try {
      hashes[index] = write_file(static_cast<int>(index), files[index], threads);
    } catch (...) {
      failures[index] = std::current_exception();
    }
  };
  std::vector<std::jthread> others;
  for (size_t index = 1; index < files.size(); ++index) {
    if (threads != WriteThreads::kOnePerFile) {
      write_one(index);
      continue;
    }
    others.push_back(start_thread("to write a file of a checkpoint", [&, index] {
      set_thread_name(fmt::format("checkpoint {}", rank_));
      write_one(index);
    }));
  }
  if (!files.empty()) write_one(0);
  others.clear();
  for (const auto& failure : failures)
    if (failure) std::rethrow_exception(failure);
  if (!files.empty()) files_.sync_directory(directory_);
  for (size_t index = 0; index < files.size(); ++index)
    if (integrity_ == Integrity::kSha256) hashes_[data_file_name(rank_, static_cast<int>(index))] = hashes[index];

  CheckpointMetadata stored;
  for (const Item& item : items_) {
    CheckpointMetadata one;
    if (item.is_tensor) {
      GlobalTensor& tensor = one.tensors[item.key] = item.described;
      tensor.chunks = {{item.box, item.stored}};
    } else {
      one.objects[item.key] = item.stored;
    }
    stored.merge(one);
  }
  return stored;
}

}  // namespace megatron
