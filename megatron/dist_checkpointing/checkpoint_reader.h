// Reads any part of any tensor of a checkpoint, whatever layout wrote it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/base/file_system.h"
#include "megatron/core/view.h"
#include "megatron/dist_checkpointing/bucketed_optimizer.h"
#include "megatron/dist_checkpointing/checkpoint_metadata.h"
#include "megatron/dist_checkpointing/legacy_checkpoint.h"
#include "megatron/dist_checkpointing/stored_tensors.h"
#include "megatron/dist_checkpointing/torch_file.h"

namespace megatron {

/// Checks on read. Without checksums only the bytes that are needed are read; with them every chunk that is touched is
/// read whole.
enum class Verify { kChecksums, kNothing };

/// A checkpoint directory (iter_0000010) in the form torch_dist: Megatron's, ours, or plain
/// torch.distributed.checkpoint; or in Megatron's form torch (LegacyCheckpoint). Legacy files and the
/// buckets of a distributed optimizer (BucketedOptimizer) are read as the tensors of the whole model.
/// Not thread-safe. Every member throws CheckpointError that names the file, the key and the remedy if something is
/// missing or damaged. Example, the rows of one rank of a weight that was saved in another layout:
///   reader.read_tensor("decoder.layers.mlp.linear_fc2.weight", {32, 1024, 4096}, {3, 0, 2048}, view);
class CheckpointReader final : public StoredTensors {
 public:
  /// Reads the index. @param files  must outlive the reader.
  CheckpointReader(const FileSystem& files, std::string directory, Verify verify);

  const std::string& directory() const { return directory_; }
  const CheckpointMetadata& metadata() const { return metadata_; }
  /// The tensors of metadata(), with the tensors in an optimizer's buckets instead of the buckets if they can be found.
  const CheckpointMetadata& whole_tensors() const;
  bool has_tensor(std::string_view key) const;
  bool has_object(std::string_view key) const { return metadata_.objects.contains(key); }

  std::optional<ElementType> type_of(std::string_view key) const override;
  StoredPlace place_of(std::string_view key, const Shape& offsets) const override;
  void read_tensor(std::string_view key, const Shape& global_shape, const Shape& offsets,
                   const View& destination) const override;
  void read_resized_tensor(std::string_view key, const Shape& offsets, const View& destination) const override;
  /// A part of a tensor of any element type, contiguous. @param destination  has the bytes of the box.
  void read_box(std::string_view key, const Box& box, std::byte* destination) const;
  /// A whole tensor, contiguous, of any element type.
  std::vector<std::byte> read_whole_tensor(std::string_view key) const;

  TorchFile read_object(std::string_view key) const;
  /// All that Megatron keeps beside tensors (args, iteration, param_groups), as a dict: in the file `common.pt`
  /// if there is one (Megatron Core 0.16 and older), otherwise in the object `common_state/shard_0_1`.
  struct CommonState {
    TorchFile file;
    const pickle::Object& state() const;
  };
  CommonState read_common_state() const;
  /// Why the tensors of an optimizer that is stored cannot be read; empty if they can.
  const std::string& optimizer_problem() const { return legacy_ ? legacy_->optimizer_problem() : buckets().problem(); }
  /// Says whether the checkpoint is of the form torch, without objects.
  bool is_legacy() const { return legacy_ != nullptr; }
  /// Says whether there is one; plain torch.distributed.checkpoint writes none.
  bool has_common_state() const;

  /// Cheap: every file that the index names is there and long enough. One rank is enough to ask.
  void check_files() const;
  /// Reads everything. @param on_bytes  told how much more has been read; may be empty.
  /// @return what is wrong, one line each; nothing if all is well.
  std::vector<std::string> verify(const std::function<void(int64_t bytes)>& on_bytes = {}) const;

 private:
  const GlobalTensor& tensor(std::string_view key) const;
  /// The stored tensor or the one in buckets; null if there is none.
  const GlobalTensor* find_tensor(std::string_view key) const;
  const BucketedOptimizer& buckets() const;
  void read_from_bucket(const BucketedOptimizer::Source& source, const Box& chunk, const Box& box,
                        int64_t element_bytes, std::byte* destination, const Shape& strides) const;
  TorchFile open_item(std::string_view key, const StoredItem& item) const;
  TorchFile open_chunk(std::string_view key, const GlobalTensor& tensor, const StoredChunk& chunk) const;
  std::unique_ptr<ReadableFile> open_range(std::string_view key, const StoredItem& item) const;
  void read_box(std::string_view key, const GlobalTensor& tensor, const Box& wanted, std::byte* destination,
                const Shape& strides) const;
  void read_chunk(std::string_view key, const GlobalTensor& tensor, size_t chunk, const Box& box,
                  std::byte* destination, const Shape& strides) const;

  const FileSystem& files_;
  std::string directory_;
  Verify verify_;
  std::shared_ptr<const LegacyCheckpoint> legacy_;  // of a directory of the form torch
  CheckpointMetadata metadata_;
  mutable std::optional<BucketedOptimizer> buckets_;  // made on first use
  mutable CheckpointMetadata whole_;                  // whole_tensors(), where there are buckets
  mutable std::set<std::string, std::less<>> tiled_;  // tensors whose chunks were found to cover them
  mutable std::string open_name_;                     // the file of the last item, kept open
  mutable std::shared_ptr<ReadableFile> open_file_;
};

}  // namespace megatron
