// A file system that passes everything on, for doubles that change one operation.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/base/file_system.h"

namespace megatron::testing {

class ForwardingFileSystem : public FileSystem {
 public:
  /// @param files  must outlive this.
  explicit ForwardingFileSystem(FileSystem& files) : files_(files) {}

  std::unique_ptr<WritableFile> open_for_writing(const std::string& path, WriteMode mode) override {
    return files_.open_for_writing(path, mode);
  }
  std::unique_ptr<ReadableFile> open_for_reading(const std::string& path) const override {
    return files_.open_for_reading(path);
  }
  bool create_file(const std::string& path, std::string_view content) override {
    return files_.create_file(path, content);
  }
  bool exists(const std::string& path) const override { return files_.exists(path); }
  std::vector<DirectoryEntry> list(const std::string& directory) const override { return files_.list(directory); }
  void create_directories(const std::string& path) override { files_.create_directories(path); }
  void rename(const std::string& from, const std::string& to) override { files_.rename(from, to); }
  void remove(const std::string& path) override { files_.remove(path); }
  void sync_directory(const std::string& path) override { files_.sync_directory(path); }
  int64_t available_bytes(const std::string& directory) const override { return files_.available_bytes(directory); }

 private:
  FileSystem& files_;
};

}  // namespace megatron::testing
