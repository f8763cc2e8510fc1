// An event count: threads sleep until an awaited change.
#pragma once

#include <atomic>
#include <chrono>
#include <climits>
#include <cstdint>

namespace megatron {

/// A waiter takes a ticket, checks its condition, and sleeps only if nothing was announced since; so the condition may
/// change without a lock, and woken threads need none. Changes are announced afterwards. Waiters sleep in
/// the kernel (futex); none spins. Thread-safe.
class EventCount {
 public:
  using Ticket = uint32_t;
  using Deadline = std::chrono::steady_clock::time_point;

  Ticket ticket() const { return count_.load(); }
  /// Returns after an announcement since `ticket`, sometimes without one. @return false if the deadline passed first
  bool wait(Ticket ticket, Deadline deadline = Deadline::max()) const;
  /// Wakes at most `num_waiters` sleeping threads.
  void announce(int num_waiters = INT_MAX);

 private:
  std::atomic<uint32_t> count_{0};
};

}  // namespace megatron
