// Signals that end a command in good order.
#pragma once

#include <atomic>
#include <csignal>
#include <initializer_list>
#include <thread>

namespace megatron {

/// Blocks signals in this thread, and so in all threads that it starts from now on, and waits for them in one of its
/// own. No thread that computes is ever interrupted by a handler: oneDNN's fp32 products point the stack pointer into a
/// block of the heap for a while (docs/decisions/0007), and the frame of a handler would overwrite what lies below.
class SignalWatch {
 public:
  /// @param numbers SIGTERM, SIGINT, ...; of the thread that has started no other yet
  explicit SignalWatch(std::initializer_list<int> numbers);
  /// What has arrived until then is not left to end the process.
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  /// The number of the last signal that has arrived, 0 if none has.
  const std::atomic<int>& received() const { return received_; }

 private:
  int first_number_;
  sigset_t watched_{}, mask_before_{};
  std::atomic<int> received_{0};
  std::jthread thread_;
};

}  // namespace megatron
