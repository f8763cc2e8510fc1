// Operations that the same ranks issue in the same order: the collectives of a group, or one tag's sends between two.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "megatron/comm/nccl/flight_queue.h"
#include "megatron/comm/nccl/nccl_communicator.h"
#include "megatron/comm/nccl/peer_copies.h"
#include "megatron/comm/nccl/peer_messages.h"

namespace megatron {

class NcclHub;
struct LanesInFlight;

/// Has a connection and a stream of its own, so that only its own order delays it. Issued by one thread.
class NcclLane {
 public:
  struct Facts {
    std::string name;          // the same on all members
    std::string_view group;    // of the operations
    std::vector<int> members;  // global ranks
  };
  /// The transport of operations.
  struct Connection {
    std::unique_ptr<NcclCommunicator> communicator;  // null: no operation uses NCCL
    std::unique_ptr<PeerCopies> copies;              // null: no collectives by copies
    std::unique_ptr<PeerMessages> messages;          // null: no sends by copies
    std::string transport;                           // for NcclHub::transports(); empty: no line
  };
  /// Called in the lane's turn with its stream.
  using Connect = std::function<Connection(const Facts&, NcclLibrary::Stream)>;

  /// A lane that its members connect when each has begun to use it: `connect` runs in a thread of its own, and
  /// operations issued until then follow it.
  NcclLane(NcclHub& hub, Facts facts, Connect connect);
  ~NcclLane();
  NcclLane(const NcclLane&) = delete;
  NcclLane& operator=(const NcclLane&) = delete;

  const Facts& facts() const { return facts_; }
  /// For launches, which happen when the lane is connected.
  const Connection& connection() const { return connection_; }
  /// Returns without waiting for other ranks, except at the first use of a communicator. While a CUDA
  /// graph is captured, the operation becomes part of it.
  NcclFlightPtr issue(const OperationInfo& info, const NcclOperands& operands, NcclLaunch launch);

 private:
  // The mutex of LanesInFlight guards everything below, except for members that only one thread uses.
  friend struct LanesInFlight;
  friend class NcclConnections;
  friend class NcclHub;
  friend class NcclWatchdog;
  struct Waiting {
    NcclFlightPtr flight;
    NcclLaunch launch;
  };
  void open_stream();
  void close() noexcept;
  void release() noexcept;
  void connect_and_drain(const Connect& connect);
  void await_stream();
  NcclFlightPtr record(const OperationInfo& info, const NcclOperands& operands, const NcclLaunch& launch);
  void launch(NcclFlight& flight, const NcclLaunch& launch);
  /// Called by the watchdog; connections in progress end with the lane.
  void begin_abort();

  NcclHub& hub_;
  Facts facts_;
  NcclLibrary::Stream stream_ = nullptr;
  Connection connection_;
  bool is_connected_ = false;
  FlightQueue queue_;
  std::deque<Waiting> waiting_;  // for the connection
  std::jthread connector_, aborter_;
};

}  // namespace megatron
