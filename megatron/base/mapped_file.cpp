#include "megatron/base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <system_error>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/base/regular_file.h"

namespace megatron {
namespace {

std::string system_text(int code) { return std::generic_category().message(code); }

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path, FileAccess access) : path_(path), access_(access) {
  const std::string reason = reason_not_regular(path.string());
  require<IoError>(reason.empty(), "{}: cannot be opened for reading: {}", path.string(), reason);
  descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a FIFO that has just come there: no waiting
  require<IoError>(descriptor_ >= 0, "{}: cannot be opened for reading: {}", path.string(), system_text(errno));
  try {
    struct stat status {};
    require<IoError>(::fstat(descriptor_, &status) == 0, "{}: fstat failed: {}", path.string(), system_text(errno));
    require<IoError>(S_ISREG(status.st_mode), "{}: is not a regular file", path.string());
    size_bytes_ = static_cast<uint64_t>(status.st_size);
    device_ = status.st_dev, inode_ = status.st_ino;
    if (access == FileAccess::kMap) map();
  } catch (...) {
    close();
    throw;
  }
}

MappedFile::~MappedFile() { close(); }

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      size_bytes_(std::exchange(other.size_bytes_, 0)),
      device_(other.device_),
      inode_(other.inode_),
      descriptor_(std::exchange(other.descriptor_, -1)),
      mapped_(std::exchange(other.mapped_, nullptr)),
      range_(std::move(other.range_)),
      access_(other.access_) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  if (this == &other) return *this;
  close();
  path_ = std::move(other.path_);
  size_bytes_ = std::exchange(other.size_bytes_, 0);
  device_ = other.device_, inode_ = other.inode_;
  descriptor_ = std::exchange(other.descriptor_, -1);
  mapped_ = std::exchange(other.mapped_, nullptr);
  range_ = std::move(other.range_);
  access_ = other.access_;
  return *this;
}

void MappedFile::map() {
  if (size_bytes_ > 0) {
    void* address = ::mmap(nullptr, size_bytes_, PROT_READ, MAP_SHARED, descriptor_, 0);
    require<IoError>(address != MAP_FAILED, "{}: {} bytes cannot be mapped: {}", path_.string(), size_bytes_,
                     system_text(errno));
    mapped_ = static_cast<const std::byte*>(address);
    range_ = MappedRange(mapped_, size_bytes_, path_);
  }
  ::close(std::exchange(descriptor_, -1));
}

void MappedFile::close() noexcept {
  range_ = MappedRange();
  if (mapped_ != nullptr) ::munmap(const_cast<std::byte*>(mapped_), size_bytes_);
  if (descriptor_ >= 0) ::close(descriptor_);
  mapped_ = nullptr;
  descriptor_ = -1;
}

std::span<const std::byte> MappedFile::bytes() const {
  require(access_ == FileAccess::kMap, "{}: bytes() needs a mapped file", path_.string());
  return {mapped_, size_bytes_};
}

/// By the path, since data sets of thousands of files would take as many descriptors.
void MappedFile::require_bytes_until(uint64_t end) const {
  struct stat status {};
  if (::stat(path_.c_str(), &status) != 0 || status.st_dev != device_ || status.st_ino != inode_) return;
  require<IoError>(static_cast<uint64_t>(status.st_size) >= end,
                   "{}: the file has become shorter since it was opened: {} bytes instead of {}", path_.string(),
                   status.st_size, size_bytes_);
}

void MappedFile::read(uint64_t offset, std::span<std::byte> out) const {
  if (offset > size_bytes_ || out.size() > size_bytes_ - offset) {
    throw IoError(fmt::format("{}: {} bytes at offset {} were asked for, but the file has {}", path_.string(),
                              out.size(), offset, size_bytes_));
  }
  if (out.empty()) return;
  if (access_ == FileAccess::kMap) {
    std::memcpy(out.data(), mapped_ + offset, out.size());
    require_bytes_until(offset + out.size());  // afterwards: what was copied before is what the file had
    return;
  }
  for (size_t done = 0; done < out.size();) {
    const ssize_t got = ::pread(descriptor_, out.data() + done, out.size() - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      throw IoError(fmt::format("{}: reading {} bytes at offset {} failed: {}", path_.string(), out.size(), offset,
                                got < 0 ? system_text(errno) : "the file has become shorter since it was opened"));
    }
    done += static_cast<size_t>(got);
  }
}

}  // namespace megatron
