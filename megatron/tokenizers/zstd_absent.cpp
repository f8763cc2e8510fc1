// Stands in for zstd_file.cpp in a build without the library.
#include <fmt/core.h>

#include "megatron/base/error.h"
#include "megatron/tokenizers/zstd_file.h"

namespace megatron {

bool has_zstd() { return false; }

std::unique_ptr<UnpackedFile> open_zstd(const std::string& path) {
  throw NotSupported(fmt::format(
      "{0} is compressed by zstd, which this build does not read. Unpack it first (zstd -d {0}), or install "
      "the library with apt-get install libzstd-dev, and build again",
      path));
}

}  // namespace megatron
