#include "megatron/comm/nccl/nccl_lane.h"

#include <system_error>
#include <utility>

#include "megatron/base/thread_name.h"
#include "megatron/comm/longest_timeout.h"
#include "megatron/comm/nccl/cuda_check.h"
#include "megatron/comm/nccl/nccl_hub.h"
#include "megatron/comm/nccl/poll.h"

namespace megatron {

NcclLane::NcclLane(NcclHub& hub, Facts facts, Connect connect)
    : hub_(hub), facts_(std::move(facts)), queue_(facts_.name) {
  open_stream();
  connector_ = std::jthread([this, connect = std::move(connect)] { connect_and_drain(connect); });
  hub_.add(*this);  // after the thread has started
}

/// High priority: other ranks wait for its sends, so it runs before kernels of the compute stream.
void NcclLane::open_stream() {
  int lowest = 0, highest = 0;
  check_cuda_call(cudaDeviceGetStreamPriorityRange(&lowest, &highest), "cudaDeviceGetStreamPriorityRange");
  check_cuda_call(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, highest), "cudaStreamCreate");
}

NcclLane::~NcclLane() {
  if (connector_.joinable()) connector_.join();
  cudaStreamSynchronize(stream_);
  close();
  hub_.remove(*this);
  if (aborter_.joinable()) aborter_.join();
  if (hub_.has_failed()) release();
  connection_ = {};
  cudaStreamDestroy(stream_);
}

/// The watchdog still sees it here and ends waits for missing ranks. Memory is freed after all ranks have closed
/// it; never after a failure, when ranks do not synchronise.
void NcclLane::close() noexcept {
  try {
    if ((connection_.copies || connection_.messages) && !hub_.has_failed()) {
      (connection_.copies ? connection_.copies->memory() : connection_.messages->memory()).disconnect();
      hub_.meet_at_end(facts_);
    }
    if (connection_.communicator) connection_.communicator->close();
  } catch (const Error& error) {
    hub_.fail(fmt::format("the end of [{}] failed on rank {}: {}", facts_.group, hub_.rank(), error.what()));
    if (connection_.communicator) connection_.communicator->abort();
  }
}

void NcclLane::release() noexcept {
  if (connection_.copies) connection_.copies->release();
  if (connection_.messages) connection_.messages->release();
}

NcclFlightPtr NcclLane::issue(const OperationInfo& info, const NcclOperands& operands, NcclLaunch function) {
  hub_.throw_if_failed();
  if (hub_.is_recording()) return record(info, operands, function);
  LanePlace place{facts_.name, queue_.num_issued(), facts_.members};
  auto flight = std::make_shared<NcclFlight>(hub_.resources(), info, facts_.group, std::move(place), operands);
  {
    const std::lock_guard lock(hub_.mutex());
    queue_.add(flight);
    if (!is_connected_ || !waiting_.empty()) {
      waiting_.push_back({flight, std::move(function)});
      return flight;
    }
  }
  launch(*flight, function);
  hub_.launched(queue_);
  return flight;
}

/// For a step, in which all lanes are connected.
NcclFlightPtr NcclLane::record(const OperationInfo& info, const NcclOperands& operands, const NcclLaunch& function) {
  require<InternalError>(!NcclFlight::is_for_host(info.op, operands),
                         "[NcclLane] a {} of {} ends on the host, which takes no part in the launch of a CUDA graph. "
                         "Issue it before the capture.",
                         name_of(info.op), facts_.group);
  require<NotSupported>(
      !connection_.messages,
      "[NcclLane] a send of {} counts pieces, which a CUDA graph that is launched again cannot. Issue "
      "it outside of the capture.",
      facts_.group);
  auto flight = std::make_shared<NcclFlight>(hub_.resources(), info, facts_.group,
                                             LanePlace{facts_.name, NcclFlight::kRecorded, facts_.members}, operands);
  launch(*flight, function);
  return flight;
}

void NcclLane::launch(NcclFlight& flight, const NcclLaunch& function) {
  try {
    flight.launch(function, stream_, [this] { return hub_.has_failed(); });
  } catch (const Error& error) {
    hub_.fail(fmt::format("{} failed on rank {}: {}", flight.to_string(), hub_.rank(), error.what()));
    hub_.throw_if_failed();
  }
}

void NcclLane::begin_abort() {
  try {
    if (connection_.communicator && !aborter_.joinable())
      aborter_ = std::jthread([&communicator = *connection_.communicator] { communicator.abort(); });
  } catch (const std::system_error&) {  // no thread is available: the watchdog calls again
  }
  release();
}

/// A connection also waits for the other members on the GPU: if one is lost there, begin_step() times out. After
/// it an operation would count as one whose turn has not come, which has no timeout.
void NcclLane::await_stream() {
  poll([&] { return hub_.has_failed() || cudaStreamQuery(stream_) != cudaErrorNotReady; }, kLongestTimeout);
}

void NcclLane::connect_and_drain(const Connect& connect) {
  set_thread_name(fmt::format("connect {}", hub_.rank()));
  try {
    hub_.use_device();
    hub_.await_turn(facts_);
    Connection connection = connect(facts_, stream_);
    await_stream();
    std::unique_lock lock(hub_.mutex());
    connection_ = std::move(connection);
    is_connected_ = true;
    if (hub_.has_failed()) return;  // the watchdog polls, and aborts it
    while (!waiting_.empty()) {
      const Waiting first = waiting_.front();
      lock.unlock();
      launch(*first.flight, first.launch);
      hub_.launched(queue_);
      lock.lock();
      waiting_.pop_front();  // not before: operations issued meanwhile must follow it
    }
    lock.unlock();
    hub_.end_connecting(facts_);
  } catch (const Error& error) {
    hub_.fail(fmt::format("a connection of [{}] between {} failed on rank {}: {}", facts_.group,
                          describe_ranks(facts_.members), hub_.rank(), error.what()));
  }
}

}  // namespace megatron
