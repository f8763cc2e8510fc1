#include "megatron/base/file_fingerprint.h"

#include <fmt/core.h>

#include <algorithm>
#include <vector>

#include "megatron/base/md5.h"

namespace megatron {

std::string file_fingerprint(const FileSystem& files, const std::string& path) {
  constexpr int64_t kBlocks = 64, kBlockBytes = 4096;
  if (!files.exists(path)) return "missing";
  const auto file = files.open_for_reading(path);
  const int64_t size = file->size();
  std::vector<std::byte> sample(static_cast<size_t>(std::min(size, kBlocks * kBlockBytes)));
  if (std::ssize(sample) == size) {
    file->read(0, sample);
  } else {
    for (int64_t block = 0; block < kBlocks; ++block) {
      const auto place = static_cast<int64_t>(static_cast<double>(size - kBlockBytes) * static_cast<double>(block) /
                                              static_cast<double>(kBlocks - 1));
      file->read(place, std::span(sample).subspan(static_cast<size_t>(block * kBlockBytes), kBlockBytes));
    }
  }
  return fmt::format("{} bytes, md5 {}", size, md5_hex(sample));
}

}  // namespace megatron
