// A thread that waits for signals.
#pragma once

#include <atomic>
#include <csignal>
#include <functional>
#include <initializer_list>
#include <thread>

namespace megatron {

/// Blocks signals in this thread, and so in all threads that it starts later, and waits for them in a thread of its
/// own. No handler ever interrupts a thread that computes: oneDNN's fp32 matmuls point the stack pointer into a
/// block of the heap for a while (docs/decisions/0007), and the frame of a handler would overwrite the memory below.
class SignalWatch {
 public:
  /// @param numbers SIGTERM, SIGINT, ... Call it before other threads start.
  /// @param on_arrival  called by the thread that waits; may be empty
  explicit SignalWatch(std::initializer_list<int> numbers, std::function<void(int number)> on_arrival = {});
  /// Signals that have arrived until then do not end the process.
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  /// The number of the last signal that has arrived, 0 if none has.
  const std::atomic<int>& received() const { return received_; }

 private:
  int first_number_;
  std::function<void(int)> on_arrival_;
  sigset_t watched_{}, mask_before_{};
  std::atomic<int> received_{0};
  std::jthread thread_;
};

/// Ends the process by the signal's default action. For on_arrival.
void die_of_watched(int number);

}  // namespace megatron
