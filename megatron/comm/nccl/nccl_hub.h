// State that the groups of one process share: device, failure, and the watchdog of in-flight operations.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "megatron/comm/nccl/connection_turns.h"
#include "megatron/comm/nccl/graph_steps.h"
#include "megatron/comm/nccl/nccl_lane.h"
#include "megatron/comm/nccl/rank_report.h"
#include "megatron/comm/nccl/store_meeting.h"
#include "megatron/comm/rank_places.h"
#include "megatron/comm/world.h"

namespace megatron {

/// Thread-safe. A watchdog thread notes when operations start and end, finds those that take too long, receives
/// failures through the store and answers queries about what this rank waits for. After a failure all communicators are
/// aborted, so that neither a stream nor a thread hangs in them.
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
  ~NcclHub();
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
  void launched(FlightQueue& queue);
  /// See ConnectionTurns.
  void await_turn(const NcclLane::Facts& lane) { turns_.await(lane.name, lane.members); }
  void end_connecting(const NcclLane::Facts& lane);
  /// Makes a communicator of the lane's members, in its turn. @param max_multiprocessors see NcclLibrary
  std::unique_ptr<NcclCommunicator> make_communicator(const NcclLane::Facts& lane, int max_multiprocessors = 0);
  /// Returns when all members have called it, or a rank has failed.
  void meet_at_end(const NcclLane::Facts& lane);
  /// Whether rows and messages of groups with that trait go by copy engine where they can.
  bool copies_between_gpus() const { return options_.copies_between_gpus; }
  /// See GpuRanks.
  std::string transports() const;
  std::mutex& mutex() { return mutex_; }
  /// See GpuRanks. @throw CommError if ranks do not come
  void begin_step();
  void end_step() noexcept { is_in_step_ = false; }
  bool is_in_step() const { return is_in_step_; }
  void begin_recording() {
    require<InternalError>(is_in_step_, "[NcclHub] a capture begins in a step, where all lanes are connected");
    is_recording_ = true;
  }
  void end_recording() noexcept { is_recording_ = false; }
  bool is_recording() const { return is_recording_; }
  /// See GpuRanks.
  void begin_graph_step(std::string_view site, std::string_view change) {
    graph_steps_.begin(site, change, world_->timeout());
  }
  void launch_graph(std::string_view site, const std::function<void()>& launch);

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
  using Clock = std::chrono::steady_clock;
  NcclCommunicator::Patience patience(std::chrono::milliseconds timeout) const;
  void watch(const std::stop_token& stop);
  /// An operation that has exceeded its timeout, or null.
  NcclFlightPtr look_at_flights();
  void handle_updates();
  void answer(int64_t query);
  RankReport report() const;
  std::map<int, RankReport> ask_all();
  void time_out(const NcclFlight& flight);
  std::vector<const FlightQueue*> queues() const;
  void wake_waiting();
  void abort_all();

  Options options_;
  NcclLibrary library_;
  StoreMeeting meeting_;
  RankPlaces places_;
  CudaEvents events_;
  PinnedPool pinned_;
  ConnectionTurns turns_{meeting_};
  GraphSteps graph_steps_{meeting_, [this] { return ask_all(); }};

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::set<NcclLane*> lanes_;
  FlightQueue graphs_{std::string(kGraphLaunches)};  // one after the other on the compute stream
  const World* world_ = nullptr;

  int64_t num_host_waits_ = 0;  // used by the waiting thread only
  bool is_in_step_ = false;     // used by the issuing thread only
  bool is_recording_ = false;   // so is this
  int64_t num_answered_ = 0;    // used by the watchdog only
  std::jthread watch_;          // destroyed first
};

}  // namespace megatron
