// Where threads sleep until something that they wait for has changed.
#pragma once

#include <atomic>
#include <chrono>
#include <climits>
#include <cstdint>

namespace megatron {

/// A waiter takes a ticket, looks, and sleeps only if nothing was announced since; so what it looks at may change
/// without a lock, and those who wake up need none. Whoever changes something announces it afterwards. Waiters sleep in
/// the kernel (futex); none spins. Thread-safe.
class EventCount {
 public:
  using Ticket = uint32_t;
  using Deadline = std::chrono::steady_clock::time_point;

  Ticket ticket() const { return count_.load(); }
  /// Returns after an announcement since `ticket`, sometimes without one. @return false if the deadline passed first
  bool wait(Ticket ticket, Deadline deadline = Deadline::max()) const;
  /// Wakes at most `num_waiters` of those that sleep.
  void announce(int num_waiters = INT_MAX);

 private:
  std::atomic<uint32_t> count_{0};
};

}  // namespace megatron
