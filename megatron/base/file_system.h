// Files as the library writes and reads them. Whatever must survive a crash goes through this interface, so that a test
// can fail any single operation and an object store can take the place of the local disk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace megatron {

/// A file being written from front to back. Not thread-safe. The destructor closes without reporting errors.
class WritableFile {
 public:
  virtual ~WritableFile();
  virtual void append(std::span<const std::byte> bytes) = 0;
  /// Returns when everything appended so far is on stable storage.
  virtual void sync() = 0;
  virtual void close() = 0;
};

/// Bytes that can be read at any offset. Reads may come from several threads.
class ReadableFile {
 public:
  virtual ~ReadableFile();
  virtual int64_t size() const = 0;
  /// Fills `out` with the bytes from `offset` on. @throw IoError unless all of them exist.
  virtual void read(int64_t offset, std::span<std::byte> out) const = 0;
};

enum class WriteMode { kTruncate, kAppend };
enum class EntryType { kFile, kDirectory, kSymlink, kOther };

struct DirectoryEntry {
  std::string name;
  EntryType type = EntryType::kFile;
};

/// A tree of files. Paths are joined with '/'. Every member throws IoError with path and reason. A name that was
/// created, renamed or removed is durable only after sync_directory() of its parent.
class FileSystem {
 public:
  virtual ~FileSystem();
  virtual std::unique_ptr<WritableFile> open_for_writing(const std::string& path, WriteMode mode) = 0;
  virtual std::unique_ptr<ReadableFile> open_for_reading(const std::string& path) const = 0;
  /// Makes a file with this content, synced, unless something has that name: of several processes on any hosts that try
  /// it, one succeeds. Nobody sees a part of the content where the file system has hard links.
  /// @return false, and no change, if something has that name.
  virtual bool create_file(const std::string& path, std::string_view content) = 0;
  /// Follows symbolic links.
  virtual bool exists(const std::string& path) const = 0;
  /// Sorted by name, without "." and "..". Does not follow symbolic links.
  virtual std::vector<DirectoryEntry> list(const std::string& directory) const = 0;
  /// Makes the directory and its parents; one that exists is left as it is.
  virtual void create_directories(const std::string& path) = 0;
  /// Atomic. Replaces a file or an empty directory at `to`; a device, pipe or socket there is an error.
  virtual void rename(const std::string& from, const std::string& to) = 0;
  /// Removes a file, a symbolic link (not what it points to) or a directory with all it holds. Nothing there is no
  /// error.
  virtual void remove(const std::string& path) = 0;
  virtual void sync_directory(const std::string& path) = 0;
  /// Bytes that an ordinary user can still write.
  virtual int64_t available_bytes(const std::string& directory) const = 0;
};

/// The operating system's files.
class PosixFileSystem final : public FileSystem {
 public:
  std::unique_ptr<WritableFile> open_for_writing(const std::string& path, WriteMode mode) override;
  /// @throw IoError also for what is not a regular file; never waits for another program.
  std::unique_ptr<ReadableFile> open_for_reading(const std::string& path) const override;
  bool create_file(const std::string& path, std::string_view content) override;
  bool exists(const std::string& path) const override;
  std::vector<DirectoryEntry> list(const std::string& directory) const override;
  void create_directories(const std::string& path) override;
  void rename(const std::string& from, const std::string& to) override;
  void remove(const std::string& path) override;
  void sync_directory(const std::string& path) override;
  int64_t available_bytes(const std::string& directory) const override;
};

/// Bytes in memory, seen as a file.
class MemoryFile final : public ReadableFile {
 public:
  explicit MemoryFile(std::string bytes) : bytes_(std::move(bytes)) {}
  int64_t size() const override { return static_cast<int64_t>(bytes_.size()); }
  void read(int64_t offset, std::span<std::byte> out) const override;

 private:
  std::string bytes_;
};

/// "directory/name".
std::string join_path(std::string_view directory, std::string_view name);
/// Everything before the last '/'; "." where there is none.
std::string parent_path(std::string_view path);

/// Makes a directory and its missing parents so that they survive a crash.
void create_durable_directories(FileSystem& files, const std::string& path);
std::string read_file(const FileSystem& files, const std::string& path);
/// Old content or new content, also after a crash: writes PATH.tmp, syncs it, renames it, syncs the directory.
void replace_file(FileSystem& files, const std::string& path, std::string_view content);

}  // namespace megatron
