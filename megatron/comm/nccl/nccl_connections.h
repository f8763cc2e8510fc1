// Connects the lanes of a process.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "megatron/comm/nccl/connection_turns.h"
#include "megatron/comm/nccl/lanes_in_flight.h"
#include "megatron/comm/nccl/nccl_lane.h"
#include "megatron/comm/nccl/store_meeting.h"

namespace megatron {

/// Thread-safe.
class NcclConnections {
 public:
  /// Refers to its arguments. @param timeout  until all ranks have arrived
  NcclConnections(const NcclLibrary& library, StoreMeeting& meeting, LanesInFlight& flights,
                  std::chrono::milliseconds timeout)
      : library_(library), meeting_(meeting), flights_(flights), timeout_(timeout) {}

  /// See ConnectionTurns.
  void await_turn(const NcclLane::Facts& lane) { turns_.await(lane.name, lane.members); }
  void end_turn(const NcclLane::Facts& lane);
  /// Makes a communicator of the lane's members, in its turn. @param max_multiprocessors see NcclLibrary
  std::unique_ptr<NcclCommunicator> make_communicator(const NcclLane::Facts& lane, int max_multiprocessors) const;
  /// Returns when all lanes are connected, and have launched the operations that waited for it. @throw CommError if
  /// ranks do not come
  void await_all();
  /// Returns when all members have called it, or a rank has failed.
  void meet_at_end(const NcclLane::Facts& lane);
  /// See GpuRanks.
  std::string transports() const;

 private:
  const NcclLibrary& library_;
  StoreMeeting& meeting_;
  LanesInFlight& flights_;
  std::chrono::milliseconds timeout_;
  ConnectionTurns turns_{meeting_};
};

}  // namespace megatron
