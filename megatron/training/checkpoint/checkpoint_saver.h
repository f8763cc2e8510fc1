// The life of a save: from an empty directory to a checkpoint that all ranks have written, at once or in the
// background.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "megatron/base/file_system.h"
#include "megatron/base/message_log.h"
#include "megatron/comm/process_group.h"
#include "megatron/core/device.h"
#include "megatron/dist_checkpointing/checkpoint_directory.h"
#include "megatron/dist_checkpointing/checkpoint_writer.h"
#include "megatron/training/checkpoint/staging_buffer.h"
#include "megatron/training/config/checkpoint_config.h"

namespace megatron {

/// A checkpoint that has become visible.
struct SavedCheckpoint {
  int64_t iteration = 0;
  std::vector<int64_t> removed;  // on rank 0: iterations of the checkpoints that its retention has deleted
  bool in_background = false;    // it was saved asynchronously
};

/// A folder of checkpoints, which of them stay, and what they hold beside the ranks' shares.
struct SaveTarget {
  std::string root;
  Retention retention;
  /// Called by rank 0 with the directory of a save before the ranks' files are written: writes and syncs what else is
  /// to become part of it. May be empty.
  std::function<void(const std::string& directory)> add_files;
  /// Called by all ranks with the directory of a save that holds all shares and their index: writes and syncs what a
  /// checkpoint of the form torch has in their place. Empty: the form is torch_dist.
  std::function<void(const std::string& directory)> write_as_torch = {};
};

enum class Wait { kNo, kYes };

/// One for each rank; all ranks call the same members in the same order.
///
/// With --async-save, save() copies the rank's tensors to host memory and returns, a thread writes and syncs the rank's
/// files, and finish() commits when all ranks' files are on stable storage. Only the rank's own thread communicates. At
/// most one save is pending: the next one waits for it. A saver that is dropped gives a pending save up; what it leaves
/// is no checkpoint, and the next save in that folder removes it.
class CheckpointSaver {
 public:
  /// @param files  must outlive the saver. @param log, require_ownership  as those of a Checkpointer.
  CheckpointSaver(FileSystem& files, const CheckpointConfig& config, MessageLog log,
                  std::function<void()> require_ownership = {});
  ~CheckpointSaver();

  /// Adds this rank's share to a writer.
  using Fill = std::function<void(CheckpointWriter&)>;
  /// Finishes the pending save, then saves.
  /// @param device  holds the tensors, and must outlive the saver.
  /// @return what has been committed: the pending save, and unless it is asynchronous this one.
  std::vector<SavedCheckpoint> save(int64_t iteration, const SaveTarget& target, const ProcessGroup& world,
                                    Device& device, const Fill& fill);
  /// Commits the pending save, if there is one and all ranks have written it; with Wait::kYes when they have.
  /// @throw the error that has ended this rank's writing, as a save that is not asynchronous throws it.
  std::optional<SavedCheckpoint> finish(const ProcessGroup& world, Wait wait);
  bool has_pending() const { return pending_ != nullptr; }

  /// Takes the host memory that asynchronous saves need. @param available  see require_host_memory_for_staging
  void reserve_staging(Device& device, const Fill& fill, int64_t available);

 private:
  struct Pending;
  Integrity integrity() const { return config_.verify_integrity ? Integrity::kSha256 : Integrity::kNone; }
  void require_ownership() const {
    if (require_ownership_) require_ownership_();
  }
  void stage(Pending& save, Device& device);
  void replace_by_torch(Pending& save, const CheckpointMetadata& metadata, const ProcessGroup& world);
  SavedCheckpoint commit(Pending& save, const CheckpointMetadata& stored, const ProcessGroup& world);

  FileSystem& files_;
  CheckpointConfig config_;
  MessageLog log_;
  std::function<void()> require_ownership_;  // may be empty
  std::optional<StagingBuffer> staging_;
  std::unique_ptr<Pending> pending_;  // behind what it reads from
};

}  // namespace megatron
