// Files of torch.save: one object, and the storages of the tensors in it. Also the items of distributed checkpoints.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "megatron/base/file_system.h"
#include "megatron/core/box.h"
#include "megatron/dist_checkpointing/pickle/pickle_reader.h"
#include "megatron/dist_checkpointing/tensor_source.h"
#include "megatron/dist_checkpointing/torch_tensor.h"
#include "megatron/dist_checkpointing/zip_archive.h"

namespace megatron {

/// Reads a file of torch.save (zip container, torch 1.6 or newer). The object is read at once, storages when asked for.
class TorchFile {
 public:
  /// @param source  names the file in errors.
  /// @throw CheckpointError if it is damaged. @throw NotSupported if it was written on a big-endian machine.
  TorchFile(std::unique_ptr<ReadableFile> file, std::string source);

  const pickle::Object& root() const { return *pickle_.root; }
  const std::string& source() const { return source_; }
  /// The elements of one of its tensors, contiguous in row-major order. The whole storage is checked.
  std::vector<std::byte> read(const TorchTensor& tensor) const;
  /// Copies the elements `box` of a tensor to host memory with these strides (in elements of the tensor's type).
  /// Needs a small buffer, whatever the size. With `verify` the whole storage is read and its checksum compared;
  /// without, only what is needed.
  void read_box(const TorchTensor& tensor, const Box& box, std::byte* destination, const Shape& destination_strides,
                bool verify) const;
  bool has_storage(std::string_view name) const { return zip_.find(storage_record(name)) != nullptr; }
  /// All bytes of a storage, whatever tensors use it.
  std::vector<std::byte> read_storage(std::string_view name) const;
  /// Reads everything and compares the checksums. @throw CheckpointError for the first that differs.
  void verify() const;
  /// The object with its graph, for the writer of another file; the file has no object afterwards.
  pickle::Pickle take_object() { return std::move(pickle_); }

 private:
  std::string storage_record(std::string_view name) const;
  const ZipEntry& storage_entry(const TorchTensor& tensor) const;

  std::unique_ptr<ReadableFile> file_;
  std::string source_;
  ZipReader zip_;
  std::string folder_;  // what all entries are named under, with '/'
  pickle::Pickle pickle_;
};

/// The input of torch.save: an object made with `graph`, and the tensors in it. Example, {"step": tensor}:
///   TorchObject object;
///   object.root = &object.graph.dict();
///   object.graph.set(*object.root, "step", object.add_tensor(view));
class TorchObject {
 public:
  pickle::Graph graph;
  pickle::Object* root = nullptr;

  /// Copies a tensor in host memory.
  pickle::Object& add_tensor(const ConstView& host);
  /// A contiguous tensor. @throw ShapeError unless the source has the bytes of the shape.
  pickle::Object& add_tensor(ElementType type, const Shape& shape, std::unique_ptr<TensorSource> source);
  /// A storage for tensors that the graph already describes; they are numbered in the order in which they are added.
  void add_storage(std::unique_ptr<TensorSource> source) { storages_.push_back(std::move(source)); }
  const std::vector<std::unique_ptr<TensorSource>>& storages() const { return storages_; }
  /// Bytes of all storages.
  int64_t payload_bytes() const;
  /// Copies all storages to host memory, one after the other, from where they are written from then on.
  /// @param buffer  payload_bytes(), which stay as they are until the object is written. @param stop  makes writing
  /// throw.
  void stage(std::span<std::byte> buffer, const std::stop_token& stop);

 private:
  pickle::Object& shared(std::string_view module, std::string_view name);

  std::vector<std::unique_ptr<TensorSource>> storages_;
  // Names that torch's pickles share between tensors, by module and name; text has no module.
  std::map<std::pair<std::string, std::string>, pickle::Object*> shared_;
};

/// Appends the file that torch.save would write, byte for byte. The file is neither synced nor closed.
/// @param folder  what its entries are named under: "archive" in distributed checkpoints, else the file's name.
/// @return bytes written.
int64_t write_torch_file(WritableFile& file, const TorchObject& object, std::string_view folder);

}  // namespace megatron
