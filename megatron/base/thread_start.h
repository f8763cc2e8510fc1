// Starting threads, with an error that says which one and what limits them.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "megatron/base/error.h"

namespace megatron {

/// The system refuses a thread.
class ThreadRefusal final : public OutOfMemory {
 public:
  using OutOfMemory::OutOfMemory;
};

/// Why the system started no thread: `reason`, the limits of this process (ulimit -u, pids.max of its cgroup and of
/// those above it) and what to do. @param work  what the thread is for: "to read training data ahead"
/// @param root  below which /proc and /sys/fs/cgroup lie
std::string thread_refusal_text(std::string_view work, std::string_view reason,
                                const std::filesystem::path& root = "/");

/// Thread(function). @throw ThreadRefusal with thread_refusal_text()
template <class Thread = std::jthread, class Function>
Thread start_thread(std::string_view work, Function&& function) {
  try {
    return Thread(std::forward<Function>(function));
  } catch (const std::system_error& error) {
    throw ThreadRefusal(thread_refusal_text(work, error.code().message()));
  }
}

}  // namespace megatron
