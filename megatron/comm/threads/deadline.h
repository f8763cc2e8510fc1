// Timeouts of waits between threads of one process.
#pragma once

#include <algorithm>
#include <chrono>

#include "megatron/comm/longest_timeout.h"

namespace megatron {

/// Counts the time in which the process could run. A process that was stopped (SIGSTOP, Ctrl-Z, a closed laptop)
/// wakes up long after the deadline; no thread has run meanwhile, so none is late, and all get their time
/// once more.
class Deadline {
 public:
  using Time = std::chrono::steady_clock::time_point;

  Deadline(Time now, std::chrono::milliseconds timeout)
      : timeout_(std::min(timeout, kLongestTimeout)), time_(now + timeout_) {}

  Time time() const { return time_; }
  /// For a thread that slept until time(). @return false if there is time left
  bool has_passed(Time now) {
    if (now >= time_ + kLongestDelay) time_ = now + timeout_;
    return now >= time_;
  }

 private:
  /// With many more threads than cores a sleeper wakes up late, but not this late.
  static constexpr std::chrono::milliseconds kLongestDelay{1000};

  std::chrono::milliseconds timeout_;
  Time time_;
};

}  // namespace megatron
