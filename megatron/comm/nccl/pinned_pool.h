// Page-locked host memory, which GPUs can access.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <vector>

namespace megatron {

/// Returned blocks are reused, and freed with the pool, because freeing waits for the GPU. Thread-safe.
class PinnedPool {
 public:
  class Block {
   public:
    Block() = default;
    Block(PinnedPool& pool, size_t capacity, std::byte* data) : pool_(&pool), capacity_(capacity), data_(data) {}
    ~Block();
    Block(Block&& other) noexcept { swap(other); }
    Block& operator=(Block&& other) noexcept {
      swap(other);
      return *this;
    }
    /// Null of none.
    std::byte* data() const { return data_; }

   private:
    void swap(Block& other) noexcept;
    PinnedPool* pool_ = nullptr;
    size_t capacity_ = 0;
    std::byte* data_ = nullptr;
  };

  PinnedPool() = default;
  ~PinnedPool();
  PinnedPool(const PinnedPool&) = delete;
  PinnedPool& operator=(const PinnedPool&) = delete;

  /// At least `bytes`; outlived by the pool. @throw DeviceError
  Block take(size_t bytes);

 private:
  std::mutex mutex_;
  std::multimap<size_t, std::byte*> free_;  // by capacity
};

}  // namespace megatron
