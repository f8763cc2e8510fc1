// The state that the groups of one process share: device, failure, connections, steps, and the watchdog.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "megatron/comm/nccl/graph_steps.h"
#include "megatron/comm/nccl/lanes_in_flight.h"
#include "megatron/comm/nccl/nccl_connections.h"
#include "megatron/comm/nccl/nccl_lane.h"
#include "megatron/comm/nccl/nccl_steps.h"
#include "megatron/comm/nccl/nccl_watchdog.h"
#include "megatron/comm/nccl/store_meeting.h"
#include "megatron/comm/rank_places.h"
#include "megatron/comm/world.h"

namespace megatron {

/// Waits for operations of the lanes, and holds the parts that do the rest: NcclConnections, NcclSteps, NcclWatchdog.
/// Thread-safe, except for what NcclSteps has.
class NcclHub {
 public:
  struct Options {
    StoreMeeting::Options meeting;
    int device = 0;                         // number of the GPU
    NcclLibrary::Stream compute = nullptr;  // operations start after what it holds
    bool copies_between_gpus = true;        // see NcclWorld::Options
    bool may_share_gpus = false;            // see NcclWorld::Options
  };
  explicit NcclHub(const Options& options);
  NcclHub(const NcclHub&) = delete;
  NcclHub& operator=(const NcclHub&) = delete;

  int rank() const { return meeting_.rank(); }
  int size() const { return meeting_.size(); }
  /// Communication with the other ranks without a GPU. Its failure is the hub's.
  StoreMeeting& meeting() { return meeting_; }
  const RankPlaces& places() const { return places_; }
  const NcclLibrary& library() const { return library_; }
  NcclFlight::Resources resources() { return {events_, pinned_, options_.compute}; }
  void set_compute_stream(NcclLibrary::Stream stream) { options_.compute = stream; }
  /// Number of waits of the host for the end of an operation.
  int64_t num_host_waits() const { return num_host_waits_; }
  /// Makes the GPU that of the calling thread.
  void use_device() const;

  void join(const World& world);
  void leave();
  void add(NcclLane& lane);
  void remove(NcclLane& lane);
  void launched(FlightQueue& queue) { flights_.launched(queue); }
  /// See ConnectionTurns.
  void await_turn(const NcclLane::Facts& lane) { connections_.await_turn(lane); }
  void end_connecting(const NcclLane::Facts& lane) { connections_.end_turn(lane); }
  /// Makes a communicator of the lane's members, in its turn. @param max_multiprocessors see NcclLibrary
  std::unique_ptr<NcclCommunicator> make_communicator(const NcclLane::Facts& lane, int max_multiprocessors = 0) const {
    return connections_.make_communicator(lane, max_multiprocessors);
  }
  /// Returns when all members have called it, or a rank has failed.
  void meet_at_end(const NcclLane::Facts& lane) { connections_.meet_at_end(lane); }
  /// Says whether rows and messages of groups with that trait go by copy engine where they can.
  bool copies_between_gpus() const { return options_.copies_between_gpus; }
  /// See GpuRanks.
  std::string transports() const { return connections_.transports(); }
  std::mutex& mutex() { return flights_.mutex; }
  /// See GpuRanks. @throw CommError if ranks do not come
  void begin_step();
  void end_step() noexcept { steps_.end(); }
  bool is_in_step() const { return steps_.is_in_step(); }
  void begin_recording() { steps_.begin_recording(); }
  void end_recording() noexcept { steps_.end_recording(); }
  bool is_recording() const { return steps_.is_recording(); }
  /// See GpuRanks.
  void begin_graph_step(std::string_view site, std::string_view change) { steps_.begin_graph_step(site, change); }
  void launch_graph(std::string_view site, const std::function<void()>& launch) {
    steps_.launch_graph(resources(), site, launch);
  }

  /// Makes the compute stream wait, and also the host if `is_for_host`. @throw CommError if the operation failed
  void wait(const NcclLane& lane, const NcclFlight& flight, bool is_for_host);
  /// For a rank that drops an operation: completes it if all ranks have entered; fails the world otherwise, and at
  /// once if an exception ends the owner of the operation.
  void abandon(const NcclLane& lane, const NcclFlight& flight, bool is_unwinding) noexcept;

  /// See StoreMeeting. Any thread, any time.
  void fail(const std::string& text) { meeting_.fail(text); }
  bool has_failed() const { return meeting_.has_failed(); }
  void throw_if_failed() const { meeting_.throw_if_failed(); }

 private:
  Options options_;
  NcclLibrary library_;
  StoreMeeting meeting_;
  RankPlaces places_;
  CudaEvents events_;
  PinnedPool pinned_;
  LanesInFlight flights_;
  NcclConnections connections_{library_, meeting_, flights_, options_.meeting.timeout};
  GraphSteps graph_steps_{meeting_, [this] { return watchdog_.ask_all(); }};
  NcclSteps steps_{meeting_, flights_, graph_steps_};
  int64_t num_host_waits_ = 0;                               // used by the waiting thread only
  NcclWatchdog watchdog_{meeting_, flights_, graph_steps_};  // destroyed first
};

}  // namespace megatron
