#include "megatron/datasets/atomic_file.h"

#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "megatron/base/error.h"
#include "megatron/datasets/temporary_file.h"

namespace megatron {
namespace {

/// @param path  for error messages.
void write_all(int descriptor, std::span<const std::byte> data, const std::filesystem::path& path) {
  while (!data.empty()) {
    const ssize_t done = ::write(descriptor, data.data(), data.size());
    if (done < 0 && errno == EINTR) continue;
    require<IoError>(done >= 0, "{}: cannot be written: {}", path.string(), std::generic_category().message(errno));
    data = data.subspan(static_cast<size_t>(done));
  }
}

}  // namespace

void write_file_atomically(const std::filesystem::path& path, std::span<const std::span<const std::byte>> parts) {
  if (path.has_parent_path()) {
    std::error_code error;
    std::filesystem::create_directories(path.parent_path(), error);
    require<IoError>(!error, "{}: the directory cannot be created: {}", path.parent_path().string(), error.message());
  }
  TemporaryFile file(path);
  for (std::span<const std::byte> part : parts) write_all(file.descriptor(), part, path);
  file.rename();
}

}  // namespace megatron
