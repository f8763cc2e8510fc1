// Copies between the memory of a device and its page-locked host memory, beside the kernels.
#pragma once

#include <cstdint>

namespace megatron {

class Arena;

/// Copies run one after the other, in the order of the calls, and beside kernels and other queues. @see
/// Device::copies_to_host
class CopyQueue {
 public:
  /// The copies up to a place in the queue.
  using Mark = int64_t;

  CopyQueue() = default;
  CopyQueue(const CopyQueue&) = delete;
  CopyQueue& operator=(const CopyQueue&) = delete;
  virtual ~CopyQueue() = default;

  /// Copies from here on wait for the kernels launched so far.
  virtual void wait_for_kernels() = 0;
  /// One side is in Device::pinned and the other in Device::arena; both stay until the copy is over. Does not wait.
  virtual void copy(const void* from, void* to, int64_t bytes) = 0;
  /// All copies so far.
  virtual Mark mark() = 0;
  /// The host waits until these copies are over.
  virtual void wait(Mark mark) = 0;
  /// Kernels launched from here on wait until these copies are over.
  virtual void hold_kernels(Mark mark) = 0;
};

/// The queue of a CPU, beside whose host nothing runs: a copy is over when the call is.
class HostCopyQueue final : public CopyQueue {
 public:
  /// @param arena  of the device; null on meta, where nothing is copied.
  explicit HostCopyQueue(const Arena* arena) : arena_(arena) {}
  void wait_for_kernels() override {}
  void copy(const void* from, void* to, int64_t bytes) override;
  Mark mark() override { return 0; }
  void wait(Mark) override {}
  void hold_kernels(Mark) override {}

 private:
  const Arena* arena_;
};

}  // namespace megatron
