// Tensors that are put together in memory one after the other while they are written.
#pragma once

#include <cstddef>
#include <functional>
#include <mutex>
#include <span>
#include <vector>

#include "megatron/dist_checkpointing/tensor_source.h"

namespace megatron {

/// Memory that tensors of one size use one after the other, so that it is not mapped anew for each. Thread-safe.
class BufferPool {
 public:
  static constexpr size_t kMostFreeBytes = size_t{128} << 20;

  /// A buffer of this size, with any content.
  std::vector<std::byte> take(size_t bytes);
  void give_back(std::vector<std::byte> buffer);

 private:
  std::mutex mutex_;
  std::vector<std::vector<std::byte>> free_;  // of kMostFreeBytes together, the last one given back last
  size_t free_bytes_ = 0;
};

/// A tensor that is in memory from prepare() to release().
class FilledSource final : public TensorSource {
 public:
  /// @param pool  must outlive the source. @param fill  writes all bytes of the tensor.
  /// @param on_bytes  receives how many bytes read() has handed out; may be empty.
  FilledSource(int64_t bytes, BufferPool& pool, std::function<void(std::span<std::byte>)> fill,
               std::function<void(int64_t)> on_bytes = {});
  int64_t bytes() const override { return bytes_; }
  void prepare() override;
  std::span<const std::byte> read(int64_t begin, int64_t count) override;
  void release() override;

 private:
  int64_t bytes_;
  BufferPool& pool_;
  std::function<void(std::span<std::byte>)> fill_;
  std::function<void(int64_t)> on_bytes_;
  std::vector<std::byte> buffer_;
};

}  // namespace megatron
