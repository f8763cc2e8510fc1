#include "megatron/comm/nccl/nccl_communicator.h"

#include <algorithm>
#include <thread>

#include "megatron/base/error.h"
#include "megatron/comm/longest_timeout.h"

namespace megatron {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;

constexpr microseconds kShortestPause{2}, kLongestPause{1000};

}  // namespace

std::unique_ptr<NcclCommunicator> NcclCommunicator::make(const NcclLibrary& library, int num_ranks,
                                                         const NcclLibrary::UniqueId& id, int rank, Patience patience) {
  std::unique_ptr<NcclCommunicator> made(
      new NcclCommunicator(library, library.init_rank(num_ranks, id, rank), std::move(patience)));
  try {
    made->await("the meeting of the ranks");
  } catch (const CommError&) {
    made->abort();
    throw;
  }
  return made;
}

NcclCommunicator::~NcclCommunicator() {
  try {
    close();
  } catch (const CommError&) {
  }
  abort();
}

std::unique_ptr<NcclCommunicator> NcclCommunicator::split(int color, int key) {
  {
    const std::lock_guard lock(mutex_);
    child_ = nullptr;
    library_.split(get(), color, key, child_);
  }
  await("a group of the ranks", color != NcclLibrary::kNoColor);
  if (color == NcclLibrary::kNoColor) return nullptr;
  std::unique_ptr<NcclCommunicator> made(new NcclCommunicator(library_, child_, patience_));
  try {
    made->await("a group of the ranks");
  } catch (const CommError&) {
    made->abort();
    throw;
  }
  return made;
}

NcclLibrary::Communicator NcclCommunicator::get() const {
  require<CommError>(handle_ != nullptr, "[NcclCommunicator] aborted");
  return handle_;
}

/// The child of a split is there some time after its parent has done its part:
/// https://github.com/NVIDIA/nccl/issues/1472
void NcclCommunicator::await(const char* call, bool has_child) {
  const auto deadline = Clock::now() + std::min(patience_.timeout, kLongestTimeout);
  const auto is_in_progress = [&] {
    const std::lock_guard lock(mutex_);
    const bool is_parent = library_.is_in_progress(get());
    return is_parent || (has_child && *static_cast<NcclLibrary::Communicator volatile*>(&child_) == nullptr);
  };
  for (microseconds pause = kShortestPause; is_in_progress(); pause = std::min(2 * pause, kLongestPause)) {
    patience_.throw_if_hopeless();
    require<CommError>(!call || Clock::now() < deadline,
                       "NCCL waits in {} for ranks that have not come within {} ms: they hang, or are lost",
                       call ? call : "", patience_.timeout.count());
    std::this_thread::sleep_for(pause);
  }
  patience_.throw_if_hopeless();
}

void NcclCommunicator::check() {
  const std::lock_guard lock(mutex_);
  if (handle_) library_.is_in_progress(handle_);
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
  const std::lock_guard lock(mutex_);
  if (handle_) library_.abort(std::exchange(handle_, nullptr));
}

}  // namespace megatron
