#include "megatron/training/hugging_face/filled_source.h"

#include <algorithm>
#include <utility>

namespace megatron {

std::vector<std::byte> BufferPool::take(size_t bytes) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = std::ranges::find(free_, bytes, &std::vector<std::byte>::size);
    if (found != free_.end()) {
      std::vector<std::byte> buffer = std::move(*found);
      free_.erase(found);
      free_bytes_ -= bytes;
      return buffer;
    }
  }
  return std::vector<std::byte>(bytes);
}

void BufferPool::give_back(std::vector<std::byte> buffer) {
  const std::lock_guard lock(mutex_);
  free_bytes_ += buffer.size();
  free_.push_back(std::move(buffer));
  while (free_bytes_ > kMostFreeBytes) {
    free_bytes_ -= free_.front().size();
    free_.erase(free_.begin());
  }
}

FilledSource::FilledSource(int64_t bytes, BufferPool& pool, std::function<void(std::span<std::byte>)> fill,
                           std::function<void(int64_t)> on_bytes)
    : bytes_(bytes), pool_(pool), fill_(std::move(fill)), on_bytes_(std::move(on_bytes)) {}

void FilledSource::prepare() {
  if (!buffer_.empty()) return;
  buffer_ = pool_.take(static_cast<size_t>(bytes_));
  fill_(std::span(buffer_).first(static_cast<size_t>(bytes_)));
}

std::span<const std::byte> FilledSource::read(int64_t begin, int64_t count) {
  prepare();
  if (on_bytes_) on_bytes_(count);
  return std::span(buffer_).subspan(static_cast<size_t>(begin), static_cast<size_t>(count));
}

void FilledSource::release() { pool_.give_back(std::exchange(buffer_, {})); }

}  // namespace megatron
