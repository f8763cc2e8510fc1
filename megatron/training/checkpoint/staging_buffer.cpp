#include "megatron/training/checkpoint/staging_buffer.h"

#include "megatron/base/error.h"

namespace megatron {
namespace {

constexpr const char* kName = "checkpoint.staging";
constexpr double kMiB = 1 << 20;

}  // namespace

std::span<std::byte> StagingBuffer::take(int64_t bytes) {
  if (this->bytes() < bytes) {
    release();
    block_ = device_.pinned.allocate(kName, bytes, MemoryUse::kWorkspace);
  }
  if (bytes == 0) return {};
  return {block_->data, static_cast<size_t>(bytes)};
}

void StagingBuffer::release() {
  if (!block_) return;
  device_.pinned.release(kName, *block_);
  block_.reset();
}

void require_host_memory_for_staging(int64_t bytes, int64_t available) {
  require<OutOfMemory>(
      bytes <= available,
      "[checkpoint] --async-save copies what this rank stores, {:.1f} MiB, to host memory before it is "
      "written, and {:.1f} MiB are left for it beside the model. Leave out --async-save, or let more "
      "ranks share what is stored (--use-distributed-optimizer, more data-parallel ranks).",
      static_cast<double>(bytes) / kMiB, static_cast<double>(available) / kMiB);
}

}  // namespace megatron
