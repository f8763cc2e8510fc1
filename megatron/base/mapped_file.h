// A file read at any offset, through a memory map or through pread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

#include "megatron/base/mapped_ranges.h"

namespace megatron {

/// How the bytes of a file are reached: a shared read-only map, or one pread per access (network file systems that map
/// badly; Megatron's `--no-mmap-bin-files`).
enum class FileAccess { kMap, kPread };

/// A regular file opened for reading at any offset. Every access is checked against the size at opening, so a short
/// file gives an exception and never a bus error. Where a mapped file shrinks while it is open, the rest of its last
/// page reads as zeros: read() then throws. Pages behind it give SIGBUS; file_mapped_at() then names the file. A file
/// that is removed or replaced stays as it was opened. Thread-safe once made.
class MappedFile {
 public:
  /// @throw IoError if the file cannot be opened, is not a regular file, or cannot be mapped. An empty file is valid.
  MappedFile(const std::filesystem::path& path, FileAccess access);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  uint64_t size_bytes() const { return size_bytes_; }
  FileAccess access() const { return access_; }

  /// The whole file. @throw InternalError unless opened with FileAccess::kMap.
  std::span<const std::byte> bytes() const;

  /// After a look at bytes() before `end`: that the file has still had them. @throw IoError if it has become shorter.
  void require_bytes_until(uint64_t end) const;

  /// Fills `out` with the bytes from `offset` on.
  /// @throw IoError if [offset, offset + out.size()) is not within the file or the read fails.
  void read(uint64_t offset, std::span<std::byte> out) const;

 private:
  void map();
  void close() noexcept;

  std::filesystem::path path_;
  uint64_t size_bytes_ = 0;
  uint64_t device_ = 0, inode_ = 0;    // that path_ had when it was opened
  int descriptor_ = -1;                // open in kPread only
  const std::byte* mapped_ = nullptr;  // null in kPread and for an empty file
  MappedRange range_;                  // of mapped_
  FileAccess access_ = FileAccess::kMap;
};

}  // namespace megatron
