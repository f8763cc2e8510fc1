// One NCCL communicator, which another thread may abort.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>

#include "megatron/comm/nccl/nccl_library.h"

namespace megatron {

/// No call waits beyond its timeout for missing ranks: NCCL's progress is polled,
/// and abandoned at the timeout.
class NcclCommunicator {
 public:
  /// Limits of the waits for other ranks.
  struct Patience {
    std::chrono::milliseconds timeout{0};     // for creation and for close()
    std::function<void()> throw_if_hopeless;  // polled while a call waits
  };

  /// Returns when all ranks have called it. @param max_multiprocessors see NcclLibrary. @throw CommError if they do not
  static std::unique_ptr<NcclCommunicator> make(const NcclLibrary& library, int num_ranks,
                                                const NcclLibrary::UniqueId& id, int rank, Patience patience,
                                                int max_multiprocessors = 0);
  /// Calls abort() unless it is closed: a rank that fails must report it to the others, and not wait for them first.
  ~NcclCommunicator() { abort(); }
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  /// NCCL connects ranks at the first collective of a kind, and the host waits for that: this does it for all
  /// kinds at once. @param numbers one for each rank, 0, in memory that the GPU can read
  /// @param own index of this rank
  void connect_collectives(int32_t* numbers, int own, NcclLibrary::Stream stream);
  /// The same for an all-to-all, which alone needs a connection between each two ranks. @param numbers  as above
  void connect_pairs(int32_t* numbers, int num_ranks, NcclLibrary::Stream stream);
  /// The same for sends from rank 0 to rank 1. @param number 0, in memory that the GPU can read. @param sends on 0
  void connect_messages(int32_t* number, bool sends, NcclLibrary::Stream stream);

  /// Calls `function(library, handle)` under the lock, and returns when NCCL has launched its work: one operation, or a
  /// group of them. It waits for other ranks at their first use, within the limits.
  /// @throw CommError after an abort
  template <class F>
  void use(F&& function) {
    {
      const std::lock_guard lock(mutex_);
      std::forward<F>(function)(library_, get());
    }
    await(nullptr);
  }
  /// @throw CommError if an operation has failed. Any thread; does not wait, and checks nothing while a call is in
  /// progress.
  void check();
  /// Waits for operations in flight, and for the other ranks, which call it too. @throw CommError after the timeout
  void close();
  /// Ends operations in flight, also for another thread that waits in a call. Returns when all have ended, and no one
  /// owns a CUDA graph with operations of this communicator any more. Any thread.
  void abort() noexcept;

 private:
  NcclCommunicator(const NcclLibrary& library, NcclLibrary::Communicator handle, Patience patience)
      : library_(library), handle_(handle), patience_(std::move(patience)) {}
  NcclLibrary::Communicator get() const;
  /// @param call for the text of a timeout; null: none
  void await(const char* call);

  const NcclLibrary& library_;
  std::mutex mutex_;                  // one call at a time; no call blocks
  NcclLibrary::Communicator handle_;  // null: aborted or closed
  Patience patience_;
};

}  // namespace megatron
