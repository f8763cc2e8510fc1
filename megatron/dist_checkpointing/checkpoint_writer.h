// Writes one rank's share of a checkpoint.
#pragma once

#include <deque>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "megatron/base/file_system.h"
#include "megatron/core/view.h"
#include "megatron/dist_checkpointing/checkpoint_metadata.h"
#include "megatron/dist_checkpointing/integrity.h"
#include "megatron/dist_checkpointing/torch_file.h"

namespace megatron {

/// Says whether files are written one after the other by the calling thread, which alone may read device memory, by the
/// calling thread while another prepares the next tensor (ReadAhead), or each by a thread of its own.
enum class WriteThreads { kCallerAlone, kReadAhead, kOnePerFile };

/// Collects what a rank stores, then writes it to files __RANK_0.distcp, __RANK_1.distcp and so on. Of the ranks that
/// hold the same shard exactly one adds it. Every rank writes; the index is made from what all of them return:
///   CheckpointWriter writer(files, directory.staging_path(10), rank);
///   writer.add_tensor("decoder.final_layernorm.weight", {4096}, {0}, view);
///   CheckpointMetadata stored = writer.write(1);
///   ... gather write_metadata(stored) on rank 0, parse_metadata() and merge() there, CheckpointDirectory::commit() ...
class CheckpointWriter {
 public:
  /// @param files  must outlive the writer. @param directory  exists.
  CheckpointWriter(FileSystem& files, std::string directory, int rank, Integrity integrity = Integrity::kNone);

  /// A part of a tensor in host memory (any strides), which stays as it is until write() returns. An empty part of a
  /// tensor that is not empty is not stored.
  /// @throw ShapeError if it is not within the whole tensor.
  void add_tensor(std::string key, const Shape& global_shape, const Shape& offsets, const ConstView& chunk);
  /// A part of a tensor that is elsewhere, such as in device memory.
  void add_tensor(std::string key, ElementType type, const Shape& global_shape, const Box& box,
                  std::unique_ptr<TensorSource> chunk);
  /// Anything else. Megatron reads lists of one element.
  void add_object(std::string key, TorchObject object);

  /// Bytes that write() will need, within a few KiB for each item.
  int64_t estimated_bytes() const;
  /// Bytes of all tensors: what stage() needs.
  int64_t tensor_bytes() const;
  /// Copies all tensors to host memory; what they came from may change then, and write() may be called on another
  /// thread.
  /// @param buffer  at least tensor_bytes(), which stay as they are until write() returns. @param stop  makes write()
  /// throw in the middle of a file.
  void stage(std::span<std::byte> buffer, const std::stop_token& stop);
  /// Writes and syncs the files and the directory's entries for them; no file where nothing was added. Tensors are
  /// spread over several files by size. One file has objects first, then tensors, in the order in which they were
  /// added.
  /// @throw IoError of the file system. What was written then has no meaning.
  CheckpointMetadata write(int num_files, WriteThreads threads = WriteThreads::kOnePerFile);
  /// The hashes of the files that write() has written, with Integrity::kSha256.
  const FileHashes& hashes() const { return hashes_; }

 private:
  struct Item {
    std::string key;
    bool is_tensor = false;
    GlobalTensor described;  // without chunks; only of tensors
    Box box;
    TorchObject object;
    StoredItem stored;

    int64_t payload_bytes() const;
  };
  using Plan = std::vector<std::vector<Item*>>;  // the items of each file
  Plan plan(int num_files);
  /// @return its hash; empty without Integrity::kSha256.
  std::string write_file(int index, const std::vector<Item*>& items, WriteThreads threads) const;

  FileSystem& files_;
  std::string directory_;
  int rank_;
  Integrity integrity_;
  std::deque<Item> items_;
  FileHashes hashes_;
};

}  // namespace megatron
