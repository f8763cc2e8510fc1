#include "megatron/comm/nccl/nccl_communicator.h"

#include <chrono>

#include "megatron/base/error.h"

namespace megatron {
namespace {

/// A call that has not returned by then waits for other ranks, and only the abort itself ends it.
constexpr std::chrono::milliseconds kLongestCall{200};

}  // namespace

NcclCommunicator::~NcclCommunicator() {
  if (NcclLibrary::Communicator handle = handle_) library_.destroy(handle);
}

NcclLibrary::Communicator NcclCommunicator::get() const {
  NcclLibrary::Communicator handle = handle_;
  require<CommError>(handle != nullptr, "[NcclCommunicator] aborted");
  return handle;
}

void NcclCommunicator::check() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  NcclLibrary::Communicator handle = handle_;
  if (lock && handle) library_.check_async_error(handle);
}

void NcclCommunicator::abort() noexcept {
  const std::unique_lock lock(mutex_, kLongestCall);
  if (NcclLibrary::Communicator handle = handle_.exchange(nullptr)) library_.abort(handle);
}

}  // namespace megatron
