// Files in the memory of the process, for what is written and read back while it lives.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "megatron/base/file_system.h"

namespace megatron {

/// Thread-safe. Paths are compared as text; "" and "." are the root, which exists. Nothing survives the object, so
/// syncing does nothing. One writer a file; who reads a file that is still written may see any of its states.
class HostMemoryFiles final : public FileSystem {
 public:
  std::unique_ptr<WritableFile> open_for_writing(const std::string& path, WriteMode mode) override;
  std::unique_ptr<ReadableFile> open_for_reading(const std::string& path) const override;
  bool create_file(const std::string& path, std::string_view content) override;
  bool exists(const std::string& path) const override;
  std::vector<DirectoryEntry> list(const std::string& directory) const override;
  void create_directories(const std::string& path) override;
  void rename(const std::string& from, const std::string& to) override;
  void remove(const std::string& path) override;
  void sync_directory(const std::string&) override {}
  /// All memory of the machine: what of it is free changes by the moment, and cached files give way.
  int64_t available_bytes(const std::string& directory) const override;

  /// Returns the size of all files together.
  int64_t total_bytes() const;

 private:
  class Content;
  class Writer;
  class Reader;
  bool is_directory(const std::string& path) const;
  void require_directory_of(const std::string& path) const;

  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Content>> files_;  // by path
  std::set<std::string> directories_;                      // without the root
};

}  // namespace megatron
