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

/// None of its calls waits longer than it may for ranks that do not come: what NCCL has begun is looked at again and
/// again, and given up.
class NcclCommunicator {
 public:
  /// How long calls wait for other ranks.
  struct Patience {
    std::chrono::milliseconds timeout{0};     // to be made, and to be closed
    std::function<void()> throw_if_hopeless;  // looked at while a call waits
  };

  /// Returns when all ranks have called it. @param max_multiprocessors see NcclLibrary. @throw CommError if they do not
  static std::unique_ptr<NcclCommunicator> make(const NcclLibrary& library, int num_ranks,
                                                const NcclLibrary::UniqueId& id, int rank, Patience patience,
                                                int max_multiprocessors = 0);
  /// abort(), unless it is closed: who has not come so far is to tell the others why, and not to wait for them first.
  ~NcclCommunicator() { abort(); }
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  /// NCCL connects ranks with the first collective of a kind, and the host waits for them then: this does it for all
  /// kinds, while all are together. @param numbers one for each rank, 0, in memory that the GPU can read
  /// @param own place of this rank
  void connect_collectives(int32_t* numbers, int own, NcclLibrary::Stream stream);
  /// The same for an all-to-all, which alone needs a connection between each two ranks. @param numbers  as above
  void connect_pairs(int32_t* numbers, int num_ranks, NcclLibrary::Stream stream);
  /// The same for messages from rank 0 to rank 1. @param number 0, in memory that the GPU can read. @param sends on 0
  void connect_messages(int32_t* number, bool sends, NcclLibrary::Stream stream);

  /// Calls `function(library, handle)` in its turn, and returns when what that began is on its way: one operation, or a
  /// group of them. It waits for other ranks where they meet for the first time, for as long as there is hope.
  /// @throw CommError after an abort
  template <class F>
  void use(F&& function) {
    {
      const std::lock_guard lock(mutex_);
      std::forward<F>(function)(library_, get());
    }
    await(nullptr);
  }
  /// @throw CommError if an operation has failed. Any thread; does not wait, and looks at nothing while a call is under
  /// way.
  void check();
  /// Waits for what is under way, and for the other ranks, which call it too. @throw CommError if they do not in time
  void close();
  /// Ends what is under way, also what another thread waits for in a call. Returns when all has ended, and nobody owns
  /// a CUDA graph with operations of this communicator any more. Any thread.
  void abort() noexcept;

 private:
  NcclCommunicator(const NcclLibrary& library, NcclLibrary::Communicator handle, Patience patience)
      : library_(library), handle_(handle), patience_(std::move(patience)) {}
  NcclLibrary::Communicator get() const;
  /// @param call for the text of a timeout; null: none
  void await(const char* call);

  const NcclLibrary& library_;
  std::mutex mutex_;                  // a call at a time, none of which blocks
  NcclLibrary::Communicator handle_;  // null: aborted or closed
  Patience patience_;
};

}  // namespace megatron
