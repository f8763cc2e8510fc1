// Host memory that an asynchronous save copies a rank's tensors to.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "megatron/core/device.h"

namespace megatron {

/// One buffer for all saves of a rank, which therefore take turns. Page-locked where the device is a GPU.
class StagingBuffer {
 public:
  /// @param device  must outlive the buffer.
  explicit StagingBuffer(Device& device) : device_(device) {}
  ~StagingBuffer() { release(); }
  StagingBuffer(const StagingBuffer&) = delete;
  StagingBuffer& operator=(const StagingBuffer&) = delete;

  /// The first `bytes` of the buffer, which grows if it has fewer. @throw OutOfMemory
  std::span<std::byte> take(int64_t bytes);
  int64_t bytes() const { return block_ ? block_->bytes : 0; }

 private:
  void release();

  Device& device_;
  std::optional<Arena::Block> block_;
};

/// Refuses a buffer that the host has no memory for.
/// @param available  host_memory_for_arenas() of this rank, when model and optimizer exist. @throw OutOfMemory
void require_host_memory_for_staging(int64_t bytes, int64_t available);

}  // namespace megatron
