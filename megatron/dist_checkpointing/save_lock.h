// The right of one training run to write into a folder of checkpoints.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "megatron/base/file_system.h"
#include "megatron/base/process_identity.h"

namespace megatron {

/// Two runs that write into one folder would remove and replace each other's checkpoints. The file `.save_lock` in the
/// folder names the process of the run that may write; the object makes it, and removes it when it is destroyed.
///
/// A process that was killed leaves the file. The next run on the same host sees that the process has ended, also when
/// its process id was given to another one, and takes its place. Of a process on another host, of an earlier boot or
/// in another container nobody here can know whether it has ended: the user says so with --take-over-save-lock.
///
/// Only one of several runs that start together gets the lock, also if they find a dead one: a run succeeds the
/// holder whose token is T by creating `.save_lock.after.T`, which a file system lets one process do; then it replaces
/// `.save_lock`. Holders that ended in between form a chain, which is followed from `.save_lock` to its end.
class SaveLock {
 public:
  struct Options {
    std::string flag = "--save";              ///< that names the folder
    bool takes_over = false;                  ///< --take-over-save-lock
    ProcessIdentity process = own_process();  ///< in whose name
  };
  /// @param files  must outlive the object. @param directory  exists.
  /// @throw CheckpointError, naming the holder, if another run has the folder, or may have it.
  SaveLock(FileSystem& files, const std::string& directory, const Options& options);
  /// Removes the file, unless another run has taken it over.
  ~SaveLock();
  SaveLock(const SaveLock&) = delete;
  SaveLock& operator=(const SaveLock&) = delete;

  /// One line on the run whose place this one has taken; empty if the folder was free.
  const std::string& note() const { return note_; }
  /// Call it before each save. Makes the file again where somebody has removed it.
  /// @throw CheckpointError if another run has taken the folder over: it may remove what this one writes.
  void require_held();

 private:
  /// The content of a lock file. Content that cannot be read has no process and the token "unreadable".
  struct Holder {
    ProcessIdentity process;
    std::string since, token;
  };
  std::string content() const;
  static Holder parse(const std::string& content);
  static std::string describe(const Holder& holder);
  std::string successor_path(const std::string& token) const;
  std::vector<Holder> holders() const;
  void require_succession(const Holder& holder, bool takes_over) const;
  bool succeed(const Holder& holder);
  bool is_held() const;

  FileSystem& files_;
  std::string folder_;  // with its flag, for messages
  std::string directory_, path_;
  Holder own_;
  std::string note_;
};

}  // namespace megatron
