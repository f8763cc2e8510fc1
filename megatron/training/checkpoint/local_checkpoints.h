// Checkpoints of each rank's own state on a disk of its node (--non-persistent-ckpt-type local), and their copies.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "megatron/base/file_system.h"
#include "megatron/base/message_log.h"
#include "megatron/comm/process_group.h"
#include "megatron/dist_checkpointing/checkpoint_directory.h"
#include "megatron/training/checkpoint/checkpoint_saver.h"
#include "megatron/training/trainer.h"

namespace megatron {

/// The ranks that hold copies of each other's checkpoints, ascending, `rank` among them: `factor` ranks, each `jump`
/// after the one before. The product of both divides the number of ranks.
std::vector<int> replica_clique(int rank, int64_t jump, int64_t factor);

/// Saves and finds local checkpoints. Each rank has one, and all ranks call the same members in the same order.
/// DIR/rank_3/of_1/iter_0000010 is the copy that rank 3 holds of the state of rank 1. Each such folder becomes visible
/// by a rename, and older iterations are deleted when all ranks have the new one: a kill at any moment leaves an
/// iteration that all ranks have.
class LocalCheckpoints {
 public:
  /// @param files  must outlive the object. @param require_ownership  as that of a Checkpointer; called before each
  /// save
  LocalCheckpoints(FileSystem& files, const CheckpointConfig& config, MessageLog log,
                   std::function<void()> require_ownership = {});

  /// Stores the state of the trainer, and with --replication sends it to the other ranks of the clique.
  SavedCheckpoint save(Trainer& trainer);
  /// This rank's part of the newest local checkpoint that is complete: each rank holds its part, or receives it from
  /// another rank that holds a copy. Nothing if that is older than `persistent`, or, with a warning, if another run or
  /// layout wrote it.
  /// @param persistent  the same on all ranks
  std::optional<CheckpointDirectory::Found> newest(Trainer& trainer, const CheckpointDirectory::Found& persistent);

 private:
  /// An iteration that can be loaded: the rank that holds the state of each rank.
  struct Complete {
    int64_t iteration = 0;
    std::vector<int> holders;
  };
  std::string folder_of(int rank) const;
  CheckpointDirectory held_by(int holder, int owner) const;
  std::vector<int> owners_held_by(int holder) const;
  std::vector<int64_t> remove_held(int rank, const std::function<bool(int64_t iteration)>& is_removed) const;
  void replicate(const ProcessGroup& world, int64_t iteration) const;
  void send(const ProcessGroup& world, int owner, int64_t iteration, int receiver) const;
  void receive(const ProcessGroup& world, int owner, int64_t iteration, int sender) const;
  std::optional<Complete> find(const ProcessGroup& world, int64_t first) const;
  bool remove_damaged(const ProcessGroup& world, const Complete& found) const;

  FileSystem& files_;
  CheckpointConfig config_;
  MessageLog log_;
  std::function<void()> require_ownership_;  // may be empty
};

}  // namespace megatron
