// The directory of --save and --load: which checkpoints it holds, and how one more becomes part of it.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "megatron/base/file_system.h"
#include "megatron/dist_checkpointing/checkpoint_metadata.h"
#include "megatron/dist_checkpointing/integrity.h"

namespace megatron {

/// Which checkpoints go after a new one was saved. The newest, and the one that the tracker names, always stay.
struct Retention {
  /// --save-retain-interval: the checkpoint before the newest goes unless its iteration is a multiple. 0: off.
  int64_t retain_interval = 0;

  /// For checkpoints that are not persistent: no iteration is a multiple.
  static Retention newest_alone() { return {.retain_interval = INT64_MAX}; }
};

/// Which checkpoints stay where a user thins out a folder: the newest ones and every so many iterations.
struct KeepRule {
  int64_t last = 1;   ///< at least 1
  int64_t every = 0;  ///< iterations that are multiples of it stay too; 0: none
};

/// A tree as Megatron has it: iter_0000010/ and so on, and latest_checkpointed_iteration.txt, the tracker.
///
/// A checkpoint is written under a name that no loader looks at and gets its name when all of it is on stable storage.
/// A crash at any moment leaves the older ones as they were:
///   1. rank 0: begin() makes iter_0000010.saving/; all ranks write and sync their files there;
///   2. rank 0: commit() writes and syncs the index, renames the directory, syncs the parent, replaces the tracker.
/// latest() trusts the tracker only if it names a complete checkpoint.
/// Only one rank calls the members that are not const, and those that list; staging_path() is the same on all. Its run
/// holds the folder's SaveLock, so that what is left unfinished there is of runs that are over.
class CheckpointDirectory {
 public:
  /// @param files  must outlive the object. @param root  may end in '/'.
  CheckpointDirectory(FileSystem& files, std::string root);

  /// Returns the folder to which ranks write the iteration's files until commit().
  std::string staging_path(int64_t iteration) const;
  std::string path(int64_t iteration) const;

  /// Makes an empty staging_path(). Removes what interrupted saves and deletions left; saves that this object has begun
  /// and not committed stay. What has the iteration's name and is not complete is renamed to iter_0000010.aside, for
  /// its tensors may be whole. @return one line for each thing removed or renamed.
  std::vector<std::string> begin(int64_t iteration);
  /// Turns the staging directory into a checkpoint. What else the caller has put there (tokenizer files) becomes part
  /// of it and must be synced. One of the same iteration is replaced.
  /// @param metadata  what all ranks have stored, merged. @param hashes  of files whose hash is known already; others
  /// are read back for it.
  /// @throw CheckpointError unless the ranks have stored every tensor whole; nothing has changed then.
  void commit(int64_t iteration, const CheckpointMetadata& metadata, Integrity integrity,
              const FileHashes& hashes = {});
  /// Turns the staging directory into a checkpoint of the form torch, whose synced files are there and need no index.
  void commit_legacy(int64_t iteration);
  /// @throw CheckpointError, with both numbers, unless this much can still be written.
  void require_space(int64_t bytes) const;

  struct Found {
    std::optional<int64_t> iteration;  // nothing for a release checkpoint
    std::string path;
  };
  struct Latest {
    std::optional<Found> found;
    std::vector<std::string> warnings;  // for the user: how the tracker and the directories disagree
  };
  /// Says whether nothing here was ever a checkpoint: the directory is absent, or has neither tracker nor checkpoints,
  /// and is none itself. What a first save has left that was cut off does not count.
  bool is_empty() const;
  /// Says whether this is the directory of one checkpoint (iter_0000010), not the one of a tree.
  bool is_checkpoint() const;
  /// The checkpoint to load: the one named by the tracker, if it is complete. Otherwise the newest complete one before
  /// that, or the newest at all if there is no tracker. Nothing if the directory is_empty().
  /// @throw CheckpointError if there is something else, which the caller would take for a first start and overwrite.
  Latest latest() const;
  /// A given iteration (--ckpt-step). @throw CheckpointError, listing those there are, unless it is complete.
  Found find(int64_t iteration) const;
  /// Iterations of all complete checkpoints, ascending.
  std::vector<int64_t> complete() const;
  /// The complete checkpoints that a rule does not keep, ascending. The newest one, the one that the tracker names, and
  /// symbolic links always stay.
  std::vector<int64_t> superfluous(const KeepRule& rule) const;
  /// Deletes one checkpoint; a crash meanwhile leaves nothing that looks like one.
  void remove(int64_t iteration);

  /// Marks the newest checkpoint as one that prune() deletes once another is newer: a run that is killed between
  /// commit() and prune() then leaves nothing behind for good. Call it before commit(). What retain_interval keeps, and
  /// symbolic links, get no mark; without retain_interval nothing does.
  void mark_for_removal(const Retention& retention);
  /// Deletes what the rules do not keep, and what mark_for_removal() marked in an earlier run; symbolic links always
  /// stay. @return the iterations deleted.
  std::vector<int64_t> prune(const Retention& retention);

 private:
  /// A directory of the root that belongs to an iteration: iter_0000010, or iter_0000010.suffix.
  struct Entry {
    std::string name;
    int64_t iteration = 0;
    std::string suffix;
    EntryType type = EntryType::kDirectory;
  };
  std::vector<Entry> entries() const;
  bool is_complete(const std::string& name) const;
  std::string problem_of(int64_t iteration) const;
  std::string problem_of_tracker(const std::string& content) const;
  [[noreturn]] void refuse(const std::string& tracker_content) const;
  std::string set_aside(int64_t iteration);
  void make_visible(int64_t iteration);
  std::string full_path(const std::string& name) const { return join_path(root_, name); }
  std::string tracker() const;
  void remove_atomically(const std::string& name);

  FileSystem& files_;
  std::string root_;
  std::set<int64_t> in_progress_;
};

}  // namespace megatron
