#include "megatron/base/file_system.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <random>
#include <system_error>

#include "megatron/base/error.h"
#include "megatron/base/regular_file.h"

namespace megatron {
namespace {

[[noreturn]] void throw_io_error(std::string_view action, const std::string& path, std::string_view reason) {
  throw IoError(fmt::format("[file system] cannot {} {}: {}", action, path, reason));
}
[[noreturn]] void throw_io_error(std::string_view action, const std::string& path, int error) {
  throw_io_error(action, path, std::strerror(error));
}

/// Retries calls that a signal interrupted.
template <class Call>
auto without_interruption(Call call) {
  decltype(call()) result;
  do result = call();
  while (result < 0 && errno == EINTR);
  return result;
}

/// Owns a file descriptor.
class Descriptor {
 public:
  Descriptor(const std::string& path, int flags, std::string_view action)
      : number_(without_interruption([&] { return ::open(path.c_str(), flags | O_CLOEXEC, 0666); })) {
    if (number_ < 0) throw_io_error(action, path, errno);
  }
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int number() const { return number_; }
  /// The descriptor is gone afterwards, whatever close() says.
  bool close() { return ::close(std::exchange(number_, -1)) == 0; }

 private:
  int number_;
};

class PosixWritableFile final : public WritableFile {
 public:
  PosixWritableFile(const std::string& path, int flags) : path_(path), descriptor_(path, flags, "create") {}
  void append(std::span<const std::byte> bytes) override {
    while (!bytes.empty()) {
      const auto written = without_interruption(
          [&] { return ::write(descriptor_.number(), bytes.data(), std::min(bytes.size(), kLargestTransferBytes)); });
      if (written < 0) throw_io_error("write to", path_, errno);
      bytes = bytes.subspan(static_cast<size_t>(written));
      unsubmitted_bytes_ += written;
    }
    if (unsubmitted_bytes_ >= kSubmittedBytes) start_writeback();
  }
  void sync() override {
    if (without_interruption([&] { return ::fsync(descriptor_.number()); }) != 0) throw_io_error("sync", path_, errno);
  }
  void close() override {
    if (!descriptor_.close()) throw_io_error("close", path_, errno);
  }
  static constexpr size_t kLargestTransferBytes = size_t{1} << 30;  // Linux transfers at most 2^31 - 4096 at once

 private:
  static constexpr int64_t kSubmittedBytes = int64_t{32} << 20;

  /// Lets the disk work while a large file is still being written, and not only in sync(), which reports any error.
  void start_writeback() {
    const off_t end = ::lseek(descriptor_.number(), 0, SEEK_CUR);
    if (end >= unsubmitted_bytes_)
      ::sync_file_range(descriptor_.number(), end - unsubmitted_bytes_, unsubmitted_bytes_, SYNC_FILE_RANGE_WRITE);
    unsubmitted_bytes_ = 0;
  }

  std::string path_;
  Descriptor descriptor_;
  int64_t unsubmitted_bytes_ = 0;  // written since start_writeback()
};

class PosixReadableFile final : public ReadableFile {
 public:
  /// Never waits for another program, which the open of a FIFO does without O_NONBLOCK.
  explicit PosixReadableFile(const std::string& path)
      : path_(path), descriptor_(require_regular(path), O_RDONLY | O_NONBLOCK, "open") {
    struct stat status {};
    if (::fstat(descriptor_.number(), &status) != 0) throw_io_error("inspect", path, errno);
    if (!S_ISREG(status.st_mode)) throw_io_error("open", path, "It is not a regular file");
    size_ = status.st_size;
    // The system then reads further ahead, with a third of the processor time. A refusal costs only speed.
    ::posix_fadvise(descriptor_.number(), 0, 0, POSIX_FADV_SEQUENTIAL);
  }
  int64_t size() const override { return size_; }
  void read(int64_t offset, std::span<std::byte> out) const override {
    while (!out.empty()) {
      const auto got = without_interruption([&] {
        return ::pread(descriptor_.number(), out.data(), std::min(out.size(), PosixWritableFile::kLargestTransferBytes),
                       offset);
      });
      if (got < 0) throw_io_error("read", path_, errno);
      require<IoError>(got > 0, "[file system] {} ends at byte {}, but {} more are wanted from there", path_, offset,
                       out.size());
      offset += got;
      out = out.subspan(static_cast<size_t>(got));
    }
  }

 private:
  static const std::string& require_regular(const std::string& path) {
    if (const std::string reason = reason_not_regular(path); !reason.empty()) throw_io_error("open", path, reason);
    return path;
  }

  std::string path_;
  Descriptor descriptor_;
  int64_t size_ = 0;
};

/// For the clean-up after an error, which is the one to report.
void remove_quietly(FileSystem& files, const std::string& path) {
  try {
    files.remove(path);
  } catch (const IoError&) {
  }
}

enum class LinkResult { kDone, kExists, kNotSupported };

/// Gives the file `from` a second name, if nothing has it.
LinkResult link_to(const std::string& from, const std::string& to) {
  if (::link(from.c_str(), to.c_str()) == 0) return LinkResult::kDone;
  const int error = errno;
  if (error == EPERM || error == EOPNOTSUPP || error == ENOSYS) return LinkResult::kNotSupported;
  if (error != EEXIST) throw_io_error("create", to, error);
  // NFS repeats a request whose answer was lost: the first one may have made the link.
  struct stat status {};
  return ::stat(from.c_str(), &status) == 0 && status.st_nlink == 2 ? LinkResult::kDone : LinkResult::kExists;
}

EntryType entry_type(mode_t mode) {
  if (S_ISREG(mode)) return EntryType::kFile;
  if (S_ISDIR(mode)) return EntryType::kDirectory;
  return S_ISLNK(mode) ? EntryType::kSymlink : EntryType::kOther;
}

}  // namespace

WritableFile::~WritableFile() = default;
ReadableFile::~ReadableFile() = default;
FileSystem::~FileSystem() = default;

std::unique_ptr<WritableFile> PosixFileSystem::open_for_writing(const std::string& path, WriteMode mode) {
  return std::make_unique<PosixWritableFile>(path,
                                             O_WRONLY | O_CREAT | (mode == WriteMode::kAppend ? O_APPEND : O_TRUNC));
}

std::unique_ptr<ReadableFile> PosixFileSystem::open_for_reading(const std::string& path) const {
  return std::make_unique<PosixReadableFile>(path);
}

bool PosixFileSystem::create_file(const std::string& path, std::string_view content) {
  const auto write = [&](const std::string& name) {
    PosixWritableFile file(name, O_WRONLY | O_CREAT | O_EXCL);
    file.append(std::as_bytes(std::span(content)));
    file.sync();
    file.close();
  };
  std::random_device random;
  const std::string temporary = fmt::format("{}.{:08x}{:08x}.tmp", path, random(), random());
  bool is_created = false;
  try {
    write(temporary);
    const LinkResult result = link_to(temporary, path);
    is_created = result == LinkResult::kDone;
    if (result == LinkResult::kNotSupported && !exists(path)) {
      write(path);
      is_created = true;
    }
  } catch (const IoError&) {
    remove_quietly(*this, temporary);
    throw;
  }
  remove(temporary);
  sync_directory(parent_path(path));
  return is_created;
}

bool PosixFileSystem::exists(const std::string& path) const {
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0) return true;
  if (errno == ENOENT || errno == ENOTDIR) return false;
  throw_io_error("inspect", path, errno);
}

std::vector<DirectoryEntry> PosixFileSystem::list(const std::string& directory) const {
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(::opendir(directory.c_str()), &::closedir);
  if (!stream) throw_io_error("list", directory, errno);
  std::vector<DirectoryEntry> entries;
  errno = 0;
  while (const dirent* item = ::readdir(stream.get())) {
    const std::string_view name = item->d_name;
    if (name == "." || name == "..") continue;
    struct stat status {};
    if (::fstatat(::dirfd(stream.get()), item->d_name, &status, AT_SYMLINK_NOFOLLOW) == 0)
      entries.push_back({std::string(name), entry_type(status.st_mode)});
    errno = 0;  // an entry that vanished meanwhile is not an error
  }
  if (errno != 0) throw_io_error("list", directory, errno);
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return entries;
}

void PosixFileSystem::create_directories(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) throw_io_error("create directory", path, error.value());
}

void PosixFileSystem::rename(const std::string& from, const std::string& to) {
  struct stat status {};
  const bool is_special = ::lstat(to.c_str(), &status) == 0 && entry_type(status.st_mode) == EntryType::kOther;
  require<IoError>(!is_special,
                   "[file system] {} is a device, pipe or socket and is not replaced. Choose another path.", to);
  if (::rename(from.c_str(), to.c_str()) != 0) throw_io_error(fmt::format("rename {} to", from), to, errno);
}

void PosixFileSystem::remove(const std::string& path) {
  std::error_code error;
  std::filesystem::remove_all(path, error);
  if (error) throw_io_error("remove", path, error.value());
}

void PosixFileSystem::sync_directory(const std::string& path) {
  const Descriptor directory(path, O_RDONLY | O_DIRECTORY, "open directory");
  // File systems without durable directories of their own (some network mounts) answer EINVAL.
  if (without_interruption([&] { return ::fsync(directory.number()); }) != 0 && errno != EINVAL)
    throw_io_error("sync directory", path, errno);
}

int64_t PosixFileSystem::available_bytes(const std::string& directory) const {
  struct statvfs status {};
  if (without_interruption([&] { return ::statvfs(directory.c_str(), &status); }) != 0)
    throw_io_error("inspect", directory, errno);
  return static_cast<int64_t>(status.f_bavail) * static_cast<int64_t>(status.f_frsize);
}

void MemoryFile::read(int64_t offset, std::span<std::byte> out) const {
  require<IoError>(offset >= 0 && offset <= size() && static_cast<int64_t>(out.size()) <= size() - offset,
                   "[file system] {} bytes at {} reach beyond the end at {}", out.size(), offset, size());
  std::copy_n(std::as_bytes(std::span(bytes_)).begin() + offset, out.size(), out.begin());
}

std::string join_path(std::string_view directory, std::string_view name) {
  if (directory.empty()) return std::string(name);
  return fmt::format("{}{}{}", directory, directory.ends_with('/') ? "" : "/", name);
}

std::string parent_path(std::string_view path) {
  while (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
  const size_t slash = path.rfind('/');
  if (slash == std::string_view::npos) return ".";
  return std::string(path.substr(0, std::max<size_t>(slash, 1)));
}

void create_durable_directories(FileSystem& files, const std::string& path) {
  if (files.exists(path)) return;
  const std::string parent = parent_path(path);
  create_durable_directories(files, parent);
  files.create_directories(path);
  files.sync_directory(parent);
}

std::string read_file(const FileSystem& files, const std::string& path) {
  const auto file = files.open_for_reading(path);
  std::string content(static_cast<size_t>(file->size()), '\0');
  file->read(0, std::as_writable_bytes(std::span(content)));
  return content;
}

void replace_file(FileSystem& files, const std::string& path, std::string_view content) {
  const std::string temporary = path + ".tmp";
  try {
    const auto file = files.open_for_writing(temporary, WriteMode::kTruncate);
    file->append(std::as_bytes(std::span(content)));
    file->sync();
    file->close();
    files.rename(temporary, path);
  } catch (const IoError&) {
    remove_quietly(files, temporary);
    throw;
  }
  files.sync_directory(parent_path(path));
}

}  // namespace megatron
