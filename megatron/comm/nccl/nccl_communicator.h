// One NCCL communicator, which another thread may abort.
#pragma once

#include <atomic>
#include <mutex>
#include <string>
#include <utility>

#include "megatron/comm/nccl/nccl_library.h"

namespace megatron {

class NcclCommunicator {
 public:
  NcclCommunicator(const NcclLibrary& library, NcclLibrary::Communicator handle) : library_(library), handle_(handle) {}
  /// Waits for what is under way.
  ~NcclCommunicator();
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  /// Calls `function(library, handle)` in its turn. @throw CommError after an abort
  template <class F>
  auto use(F&& function) {
    const std::lock_guard lock(mutex_);
    return std::forward<F>(function)(library_, get());
  }
  /// @throw CommError if an operation has failed. Any thread.
  void check();
  /// Ends what is under way, also where a thread waits in use() for other ranks to connect. Any thread.
  void abort() noexcept;

 private:
  NcclLibrary::Communicator get() const;

  const NcclLibrary& library_;
  std::timed_mutex mutex_;
  std::atomic<NcclLibrary::Communicator> handle_;  // null: aborted
};

}  // namespace megatron
