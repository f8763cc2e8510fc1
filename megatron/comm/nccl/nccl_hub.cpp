#include "megatron/comm/nccl/nccl_hub.h"

#include <vector>

#include "megatron/comm/longest_timeout.h"
#include "megatron/comm/nccl/cuda_check.h"
#include "megatron/comm/nccl/gpu_place.h"
#include "megatron/comm/nccl/poll.h"

namespace megatron {
namespace {

/// Time for operations that all ranks have entered when a rank drops them.
constexpr std::chrono::milliseconds kGraceTime{500};

}  // namespace

/// The watchdog starts before NCCL: it detects ranks that fail meanwhile. NCCL cannot name missing ranks; here
/// all ranks have arrived before NCCL starts.
NcclHub::NcclHub(const Options& options)
    : options_(options), meeting_(options.meeting, [this] { flights_.wake_waiting(); }) {
  use_device();
  watchdog_.start([this] { use_device(); });
  try {
    places_ = RankPlaces::parse(meeting_.meet(gpu_place(options_.device).serialize()));
  } catch (const Error& error) {
    fail(fmt::format("rank {} could not join the others: {}", rank(), error.what()));
    throw;
  }
  if (!options_.may_share_gpus) places_.require_a_gpu_each();  // all ranks detect it alike
}

void NcclHub::use_device() const { check_cuda_call(cudaSetDevice(options_.device), "cudaSetDevice"); }

void NcclHub::join(const World& world) {
  const std::lock_guard lock(flights_.mutex);
  flights_.world = &world;
}

void NcclHub::leave() {
  const std::lock_guard lock(flights_.mutex);
  flights_.world = nullptr;
}

void NcclHub::add(NcclLane& lane) {
  const std::lock_guard lock(flights_.mutex);
  flights_.lanes.insert(&lane);
}

void NcclHub::remove(NcclLane& lane) {
  const std::lock_guard lock(flights_.mutex);
  flights_.lanes.erase(&lane);
}

void NcclHub::begin_step() {
  connections_.await_all();
  steps_.begin();
}

void NcclHub::wait(const NcclLane& lane, const NcclFlight& flight, bool is_for_host) {
  throw_if_failed();
  const bool is_recording = steps_.is_recording();
  if (flight.is_recorded() != is_recording)
    throw InternalError(fmt::format("[NcclHub] {}: it and its wait are not in the same capture", flight.to_string()));
  require<InternalError>(!is_recording || !is_for_host, "[NcclHub] {}: the host cannot wait in a capture",
                         flight.to_string());
  if (is_recording) return flight.make_stream_wait(options_.compute);
  {
    std::unique_lock lock(flights_.mutex);
    flights_.changed.wait(lock, [&] { return lane.queue_.is_launched(flight) || has_failed(); });
  }
  throw_if_failed();
  const OperationInfo& info = flight.info();
  try {
    if (!flight.has_ended()) info.recorder->waited(info.record, std::chrono::steady_clock::now());
    if (!is_for_host && !flight.is_for_host()) return flight.make_stream_wait(options_.compute);
    ++num_host_waits_;
    poll([&] { return has_failed() || flight.has_ended(); }, kLongestTimeout);
    if (!has_failed()) {
      const std::lock_guard lock(flights_.mutex);
      return const_cast<NcclLane&>(lane).queue_.note_ends();
    }
  } catch (const Error& error) {
    fail(fmt::format("rank {}: {}", rank(), error.what()));
  }
  poll([&] { return flight.is_over(); }, NcclWatchdog::kDrainTime);  // host memory must not be written any more
  throw_if_failed();
}

void NcclHub::abandon(const NcclLane& lane, const NcclFlight& flight, bool is_unwinding) noexcept {
  if (flight.is_recorded()) return;
  try {
    if (has_failed()) {
      poll([&] { return flight.is_over(); }, NcclWatchdog::kDrainTime);
      return;
    }
    const auto is_launched = [&] {
      const std::lock_guard lock(flights_.mutex);
      return lane.queue_.is_launched(flight);
    };
    if (is_unwinding || !poll([&] { return is_launched() && flight.has_ended(); }, kGraceTime)) {
      const std::vector<int> missing = missing_ranks(flight.place(), watchdog_.ask_all());
      if (!missing.empty()) fail(explain_drop(rank(), flight.to_string(), missing, is_unwinding));
    }
    wait(lane, flight, true);
  } catch (const Error&) {
  }
}

}  // namespace megatron
