// Polls a predicate until a timeout.
#pragma once

#include <algorithm>
#include <chrono>
#include <thread>

#include "megatron/comm/longest_timeout.h"

namespace megatron {

/// Returns whether `is_done` became true within `timeout`.
template <class F>
bool poll(F&& is_done, std::chrono::milliseconds timeout,
          std::chrono::microseconds longest_pause = std::chrono::microseconds(100)) {
  const auto deadline = std::chrono::steady_clock::now() + std::min(timeout, kLongestTimeout);
  for (std::chrono::microseconds pause(5); !is_done(); pause = std::min(2 * pause, longest_pause)) {
    if (std::chrono::steady_clock::now() >= deadline) return false;
    std::this_thread::sleep_for(pause);
  }
  return true;
}

}  // namespace megatron
