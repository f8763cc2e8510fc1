// Stands for libnccl.so.2 where a test must see what NCCL does when ranks do not come.
#pragma once

#include <atomic>
#include <mutex>
#include <string>
#include <vector>

namespace megatron::testing {

/// What the stand-in does. Each call on a communicator is in progress for `looks` looks at its state.
struct FakeNccl {
  static constexpr int kForEver = -1;
  std::atomic<int> looks = 0;
  std::atomic<int> version = 22809;
  std::atomic<int> result = 0;  // of what was in progress: 0, or 2, "a failure"

  void called(const std::string& name) {
    const std::lock_guard lock(mutex);
    calls.push_back(name);
  }
  std::vector<std::string> all_calls() {
    const std::lock_guard lock(mutex);
    return calls;
  }
  std::mutex mutex;
  std::vector<std::string> calls;  // but for looks
};
FakeNccl& fake_nccl();

}  // namespace megatron::testing
