// A stand-in for libnccl.so.2, for tests with missing ranks.
#pragma once

#include <atomic>
#include <mutex>
#include <string>
#include <vector>

namespace megatron::testing {

/// Settings of the stand-in. Each call on a communicator is in progress for `looks` polls of its state.
struct FakeNccl {
  static constexpr int kForEver = -1;
  std::atomic<int> looks = 0;
  std::atomic<int> version = 22809;
  std::atomic<int> result = 0;  // of the call in progress: 0, or 2, "a failure"

  void called(const std::string& name) {
    const std::lock_guard lock(mutex);
    calls.push_back(name);
  }
  std::vector<std::string> all_calls() {
    const std::lock_guard lock(mutex);
    return calls;
  }
  std::mutex mutex;
  std::vector<std::string> calls;  // without polls
};
FakeNccl& fake_nccl();

}  // namespace megatron::testing
