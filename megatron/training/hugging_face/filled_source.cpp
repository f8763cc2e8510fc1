#include "megatron/training/hugging_face/filled_source.h"

#include <utility>

namespace megatron {

std::vector<std::byte> BufferPool::take(size_t bytes) {
  std::vector<std::byte> buffer;
  {
    const std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      buffer = std::move(free_.back());
      free_.pop_back();
    }
  }
  if (buffer.size() < bytes) {
    buffer = {};  // first, so that both are never in memory
    buffer.resize(bytes);
  }
  return buffer;
}

void BufferPool::give_back(std::vector<std::byte> buffer) {
  if (buffer.empty()) return;
  const std::lock_guard lock(mutex_);
  free_.push_back(std::move(buffer));
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
