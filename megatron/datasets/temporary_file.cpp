#include "megatron/datasets/temporary_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "megatron/base/error.h"

namespace megatron {
namespace {

constexpr int kMaxAttempts = 10000;
constexpr std::string_view kMark = ".tmp.";

std::string system_text(int code) { return std::generic_category().message(code); }

}  // namespace

TemporaryFile::TemporaryFile(const std::filesystem::path& final_path) : final_path_(final_path.string()) {
  // The number distinguishes threads of this process and processes of other machines with the same process id.
  for (int number = 0; descriptor_ < 0; ++number) {
    name_ = fmt::format("{}{}{}.{}", final_path_, kMark, ::getpid(), number);
    if (open_and_lock()) break;
    require<IoError>(errno == EEXIST && number < kMaxAttempts, "{}: cannot be written: {}. Does its directory exist?",
                     final_path_, system_text(errno));
  }
}

TemporaryFile::TemporaryFile(const std::filesystem::path& final_path, const std::string& existing)
    : final_path_(final_path.string()), name_(existing), descriptor_(::open(name_.c_str(), O_WRONLY | O_CLOEXEC)) {
  require<IoError>(descriptor_ >= 0, "{}: cannot be continued: {}", name_, system_text(errno));
  if (::flock(descriptor_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;
  ::close(descriptor_);
  throw IoError(fmt::format("{}: another process is writing it", name_));
}

/// False if such a file exists already, or if a search for abandoned files locked it first.
bool TemporaryFile::open_and_lock() {
  descriptor_ = ::open(name_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor_ < 0) return false;
  struct stat status {};
  const bool is_locked = ::flock(descriptor_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;  // or there are no locks
  if (is_locked && ::fstat(descriptor_, &status) == 0 && status.st_nlink > 0) return true;
  ::close(std::exchange(descriptor_, -1));
  errno = EEXIST;
  return false;
}

TemporaryFile::~TemporaryFile() {
  if (!renamed_ && !kept_) ::unlink(name_.c_str());
  ::close(descriptor_);
}

void TemporaryFile::rename() {
  require<IoError>(::rename(name_.c_str(), final_path_.c_str()) == 0, "{}: cannot be written: {}", final_path_,
                   system_text(errno));
  renamed_ = true;
}

void remove_abandoned_files(const std::filesystem::path& final_path) noexcept try {
  const std::string start = final_path.filename().string() + std::string(kMark);
  const auto directory = final_path.has_parent_path() ? final_path.parent_path() : std::filesystem::path(".");
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    if (!entry.path().filename().string().starts_with(start)) continue;
    const int descriptor = ::open(entry.path().c_str(), O_WRONLY | O_CLOEXEC);
    if (descriptor < 0) continue;
    if (::flock(descriptor, LOCK_EX | LOCK_NB) == 0) ::unlink(entry.path().c_str());
    ::close(descriptor);
  }
} catch (const std::exception&) {
}

}  // namespace megatron
