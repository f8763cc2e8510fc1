#include "megatron/comm/nccl/pinned_pool.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "megatron/comm/nccl/cuda_check.h"

namespace megatron {
namespace {

constexpr size_t kSmallest = size_t{64} << 10;

}  // namespace

PinnedPool::Block::~Block() {
  if (!data_) return;
  const std::lock_guard lock(pool_->mutex_);
  pool_->free_.emplace(capacity_, data_);
}

void PinnedPool::Block::swap(Block& other) noexcept {
  std::swap(pool_, other.pool_);
  std::swap(capacity_, other.capacity_);
  std::swap(data_, other.data_);
}

PinnedPool::~PinnedPool() {
  for (const auto& [capacity, data] : free_) cudaFreeHost(data);
}

PinnedPool::Block PinnedPool::take(size_t bytes) {
  const size_t capacity = std::bit_ceil(std::max(bytes, kSmallest));
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = free_.find(capacity); found != free_.end()) {
      std::byte* data = found->second;
      free_.erase(found);
      return {*this, capacity, data};
    }
  }
  void* data = nullptr;
  check_cuda_call(cudaHostAlloc(&data, capacity, cudaHostAllocPortable), "cudaHostAlloc");
  return {*this, capacity, static_cast<std::byte*>(data)};
}

}  // namespace megatron
