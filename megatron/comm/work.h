// An operation in flight.
#pragma once

#include <memory>
#include <utility>

#include "megatron/comm/keep_alive.h"

namespace megatron {

/// A backend's part of one issued operation.
/// Contract: the destructor returns only when no rank touches the operation's buffers any more. If the operation can
/// still be completed without a further call on other ranks, it is; else all groups of the world fail and name this
/// rank.
class PendingOperation {
 public:
  virtual ~PendingOperation() = default;
  /// @see Work::wait
  virtual void wait() = 0;
  /// @see Work::block
  virtual void block() = 0;
};

/// Result of every asynchronous operation. Until wait() the operation's buffers must not be read or written; Work keeps
/// CommOptions::keep_alive alive. Move-only; used by the thread that issued the operation.
class [[nodiscard]] Work {
 public:
  /// An operation that is done.
  Work() = default;
  Work(std::unique_ptr<PendingOperation> pending, KeepAlive keep_alive)
      : keep_alive_(std::move(keep_alive)), pending_(std::move(pending)) {}
  Work(Work&&) noexcept = default;
  Work& operator=(Work other) noexcept {
    std::swap(keep_alive_, other.keep_alive_);
    std::swap(pending_, other.pending_);
    return *this;
  }

  /// Orders later work after the operation: on a device the compute stream waits, on the CPU the thread does.
  /// Releases the kept values. A second call does nothing.
  /// @throw CommError if a rank was late, was lost, aborted, or called another operation.
  void wait();
  /// Waits as wait() does, and on a device also stops the host until the operation has ended.
  void block();

 private:
  KeepAlive keep_alive_;  // destroyed after pending_
  std::unique_ptr<PendingOperation> pending_;
};

}  // namespace megatron
