#include "megatron/comm/threads/event_count.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>

namespace megatron {
namespace {

static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t) && std::atomic<uint32_t>::is_always_lock_free,
              "a futex is a plain word");

/// steady_clock is CLOCK_MONOTONIC, the clock of FUTEX_WAIT_BITSET's deadline.
timespec monotonic_time(EventCount::Deadline deadline) {
  const auto since = deadline.time_since_epoch();
  const auto seconds = std::chrono::floor<std::chrono::seconds>(since);
  return {static_cast<time_t>(seconds.count()),
          static_cast<long>(std::chrono::duration_cast<std::chrono::nanoseconds>(since - seconds).count())};
}

}  // namespace

bool EventCount::wait(Ticket ticket, Deadline deadline) const {
  const timespec time = monotonic_time(deadline);
  const long status = syscall(SYS_futex, &count_, FUTEX_WAIT_BITSET_PRIVATE, ticket,
                              deadline == Deadline::max() ? nullptr : &time, nullptr, FUTEX_BITSET_MATCH_ANY);
  return status == 0 || errno != ETIMEDOUT;
}

void EventCount::announce(int num_waiters) {
  count_.fetch_add(1);
  syscall(SYS_futex, &count_, FUTEX_WAKE_PRIVATE, num_waiters, nullptr, nullptr, 0);
}

}  // namespace megatron
