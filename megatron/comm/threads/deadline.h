// How long threads of one process wait for each other.
#pragma once

#include <algorithm>
#include <chrono>

#include "megatron/comm/longest_timeout.h"

namespace megatron {

/// Counts the time in which the process could run. One that was stopped (SIGSTOP, Ctrl-Z, a laptop that was closed)
/// wakes up long after the deadline; no thread has run meanwhile, so none has come too late, and all get their time
/// once more.
class Deadline {
 public:
  using Time = std::chrono::steady_clock::time_point;

  Deadline(Time now, std::chrono::milliseconds timeout)
      : timeout_(std::min(timeout, kLongestTimeout)), time_(now + timeout_) {}

  Time time() const { return time_; }
  /// For one who slept until time(). @return false if there is time yet, or again
  bool has_passed(Time now) {
    if (now >= time_ + kLongestDelay) time_ = now + timeout_;
    return now >= time_;
  }

 private:
  /// A machine with many more threads than cores wakes a sleeper up later than asked for, but not this late.
  static constexpr std::chrono::milliseconds kLongestDelay{1000};

  std::chrono::milliseconds timeout_;
  Time time_;
};

}  // namespace megatron
