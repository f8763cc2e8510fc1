// A file system in memory that can fail at any operation and lose what was not synced.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "megatron/base/file_system.h"

namespace megatron {

/// The state after a crash. Real file systems are between these.
enum class AfterCrash {
  kEverything,       // the process was killed; the system lives on
  kSyncedOnly,       // power was lost: contents and names are as last synced
  kNamesNotContents  // power was lost: names are current, contents as last synced
};
enum class Fault {
  kError,  // this one operation fails; an append writes half of its bytes first
  kCrash   // so do all that follow
};

/// Relative paths, "" is the root. Thread-safe.
class MemoryFileSystem final : public FileSystem {
 public:
  MemoryFileSystem();
  std::unique_ptr<WritableFile> open_for_writing(const std::string& path, WriteMode mode) override;
  std::unique_ptr<ReadableFile> open_for_reading(const std::string& path) const override;
  bool create_file(const std::string& path, std::string_view content) override;
  bool exists(const std::string& path) const override;
  std::vector<DirectoryEntry> list(const std::string& directory) const override;
  void create_directories(const std::string& path) override;
  void rename(const std::string& from, const std::string& to) override;
  void remove(const std::string& path) override;
  void sync_directory(const std::string& path) override;
  int64_t available_bytes(const std::string& directory) const override;

  /// Operations that change something, so far.
  int64_t num_operations() const { return num_operations_; }
  /// The operation with this number (from 0 on) throws IoError.
  void fail_at(int64_t operation, Fault fault) { fault_at_ = operation, fault_ = fault; }
  void recover(AfterCrash left);
  int64_t space_bytes = int64_t{1} << 40;

  struct Node;

 private:
  friend class MemoryWritableFile;
  using NodePointer = std::shared_ptr<Node>;
  NodePointer find(const std::string& path) const;
  NodePointer require_directory(const std::string& path) const;
  /// Counts an operation. @return true if it must fail after half of its work.
  bool count_operation();
  void count_or_throw();

  mutable std::mutex mutex_;
  NodePointer root_;
  int64_t num_operations_ = 0, fault_at_ = -1;
  Fault fault_ = Fault::kError;
};

}  // namespace megatron
