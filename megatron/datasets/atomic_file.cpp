#include "megatron/datasets/atomic_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>

#include "megatron/base/error.h"

namespace megatron {
namespace {

constexpr int kMaxAttempts = 10000;

std::string system_text(int code) { return std::generic_category().message(code); }

/// A uniquely named file that is removed unless it was renamed to its final place.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::filesystem::path& final_path) : final_path_(final_path.string()) {
    // The number sets apart threads of this process and leftovers of a killed one with the same process id.
    for (int number = 0; descriptor_ < 0; ++number) {
      name_ = fmt::format("{}.tmp.{}.{}", final_path_, ::getpid(), number);
      descriptor_ = ::open(name_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
      require<IoError>(descriptor_ >= 0 || (errno == EEXIST && number < kMaxAttempts), "{}: cannot be written: {}",
                       final_path_, system_text(errno));
    }
  }
  ~TemporaryFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
    if (!renamed_) ::unlink(name_.c_str());
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  void write(std::span<const std::byte> data) {
    while (!data.empty()) {
      const ssize_t done = ::write(descriptor_, data.data(), data.size());
      if (done < 0 && errno == EINTR) continue;
      require<IoError>(done >= 0, "{}: cannot be written: {}", final_path_, system_text(errno));
      data = data.subspan(static_cast<size_t>(done));
    }
  }

  void rename() {
    require<IoError>(::rename(name_.c_str(), final_path_.c_str()) == 0, "{}: cannot be written: {}", final_path_,
                     system_text(errno));
    renamed_ = true;
  }

 private:
  std::string final_path_;
  std::string name_;
  int descriptor_ = -1;
  bool renamed_ = false;
};

}  // namespace

void write_file_atomically(const std::filesystem::path& path, std::span<const std::span<const std::byte>> parts) {
  if (path.has_parent_path()) {
    std::error_code error;
    std::filesystem::create_directories(path.parent_path(), error);
    require<IoError>(!error, "{}: the directory cannot be made: {}", path.parent_path().string(), error.message());
  }
  TemporaryFile file(path);
  for (std::span<const std::byte> part : parts) file.write(part);
  file.rename();
}

}  // namespace megatron
