#include "megatron/comm/nccl/nccl_communicator.h"

#include <algorithm>
#include <thread>

#include "megatron/base/error.h"
#include "megatron/comm/longest_timeout.h"

namespace megatron {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;

/// Between connected ranks NCCL's work for an operation takes less time than waking a thread.
constexpr microseconds kWithoutPause{200}, kShortestPause{2}, kLongestPause{1000};

}  // namespace

std::unique_ptr<NcclCommunicator> NcclCommunicator::make(const NcclLibrary& library, int num_ranks,
                                                         const NcclLibrary::UniqueId& id, int rank, Patience patience,
                                                         int max_multiprocessors) {
  std::unique_ptr<NcclCommunicator> made(
      new NcclCommunicator(library, library.init_rank(num_ranks, id, rank, max_multiprocessors), std::move(patience)));
  made->await("the connection of the ranks");
  return made;
}

NcclLibrary::Communicator NcclCommunicator::get() const {
  require<CommError>(handle_ != nullptr, "[NcclCommunicator] aborted");
  return handle_;
}

void NcclCommunicator::await(const char* call) {
  const auto begin = Clock::now(), deadline = begin + std::min(patience_.timeout, kLongestTimeout);
  const auto is_in_progress = [&] {
    const std::lock_guard lock(mutex_);
    return library_.is_in_progress(get());
  };
  for (microseconds pause = kShortestPause; is_in_progress();) {
    patience_.throw_if_hopeless();
    require<CommError>(!call || Clock::now() < deadline,
                       "NCCL waits in {} for ranks that did not arrive within {} ms: they hang, or are lost",
                       call ? call : "", patience_.timeout.count());
    if (Clock::now() < begin + kWithoutPause) {
      std::this_thread::yield();
      continue;
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, kLongestPause);
  }
  patience_.throw_if_hopeless();
}

void NcclCommunicator::connect_collectives(int32_t* numbers, int own, NcclLibrary::Stream stream) {
  use([&](const NcclLibrary& library, NcclLibrary::Communicator handle) {
    library.all_reduce(numbers, numbers, 1, DType::kInt32, ReduceOp::kSum, handle, stream);
  });
  use([&](const NcclLibrary& library, NcclLibrary::Communicator handle) {
    library.reduce_scatter(numbers, numbers + own, 1, DType::kInt32, ReduceOp::kSum, handle, stream);
  });
}

void NcclCommunicator::connect_pairs(int32_t* numbers, int num_ranks, NcclLibrary::Stream stream) {
  use([&](const NcclLibrary& library, NcclLibrary::Communicator handle) {
    library.group_start();
    for (int peer = 0; peer < num_ranks; ++peer) {
      library.send(numbers + peer, sizeof *numbers, peer, handle, stream);
      library.receive(numbers + peer, sizeof *numbers, peer, handle, stream);
    }
    library.group_end();
  });
}

void NcclCommunicator::connect_messages(int32_t* number, bool sends, NcclLibrary::Stream stream) {
  use([&](const NcclLibrary& library, NcclLibrary::Communicator handle) {
    if (sends)
      library.send(number, sizeof *number, 1, handle, stream);
    else
      library.receive(number, sizeof *number, 0, handle, stream);
  });
}

void NcclCommunicator::check() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (lock && handle_) library_.is_in_progress(handle_);
}

void NcclCommunicator::close() {
  const auto is_open = [&] {
    const std::lock_guard lock(mutex_);
    return handle_ != nullptr;
  };
  if (!is_open()) return;
  patience_.throw_if_hopeless();
  {
    const std::lock_guard lock(mutex_);
    library_.finalize(get());
  }
  await("the end of a group");
  const std::lock_guard lock(mutex_);
  if (handle_) library_.destroy(std::exchange(handle_, nullptr));
}

void NcclCommunicator::abort() noexcept {
  NcclLibrary::Communicator handle = nullptr;
  {
    const std::lock_guard lock(mutex_);
    handle = std::exchange(handle_, nullptr);
  }
  if (handle) library_.abort(handle);
}

}  // namespace megatron
