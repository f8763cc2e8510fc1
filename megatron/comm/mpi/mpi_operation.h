// One rank's part in one operation of a group of processes.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "megatron/comm/mpi/mpi_plan.h"
#include "megatron/comm/mpi/mpi_transport.h"
#include "megatron/comm/operation_key.h"

namespace megatron {

/// Properties of a group that its operations need.
struct MpiGroupFacts {
  std::string name;
  std::vector<int> ranks;  // global
  int own = 0;             // index in `ranks`
  int split = 0;           // number of the World::split() that made it
  uint64_t hash = 0;       // of name and ranks
};

/// The handshake of an operation: the sender has entered it. Sent in its memory representation; all processes
/// run the same program.
struct MpiGreeting {
  uint64_t group_hash = 0;
  std::array<char, 24> group_name{};  // as much as fits
  OperationKey key;
  CommOp op = CommOp::kBarrier;  // the sender's own name for it: send or recv
  Site site;
  int64_t sequence = 0;
  int64_t num_sent = 0;  // all_to_all: elements from the sender to the receiver
  size_t payload_bytes = 0;
};

/// Ranks first exchange handshakes; when all ranks that an operation needs have entered and agree, its plan runs. Not
/// thread-safe: the group's hub guards it. In a collective every member sends a handshake to every other, so each knows
/// the missing ranks.
class MpiOperation {
 public:
  using Time = std::chrono::steady_clock::time_point;
  struct Call {
    OperationKey key;
    CommOp op = CommOp::kBarrier;
    Site site;
    int64_t sequence = 0;
    std::vector<int64_t> send_counts, receive_counts;  // all_to_all
    int peer = -1;                                     // of a send or receive; -1: all others
  };

  /// @param facts outlives the operation
  MpiOperation(const MpiGroupFacts& facts, Call call, MpiPlan plan);

  /// Advances as far as possible without waiting. @throw CommError if ranks disagree
  void advance(const MpiTransport& transport);
  /// All ranks that the operation needs have entered it.
  bool is_ready() const { return is_ready_; }
  bool is_done() const { return is_done_; }
  Time started() const { return started_; }
  Time ended() const { return ended_; }

  /// Global ranks that have not entered; in a ready operation, ranks with pending transfers.
  std::vector<int> missing_ranks() const;
  std::string to_string() const;
  /// Groups of the same name have different hashes.
  uint64_t group_hash() const { return facts_.hash; }

 private:
  struct Peer {
    int member = 0;  // of the group
    MpiTransport::Request sending = nullptr, receiving = nullptr;
    bool has_come = false;
    std::vector<std::byte> outgoing, incoming;  // handshake and payload
  };
  struct Transfer {
    int member = 0;
    MpiTransport::Request request = nullptr;
  };

  bool sends_greetings() const { return call_.op != CommOp::kReceive; }
  bool receives_greetings() const { return call_.op != CommOp::kSend; }
  int tag(bool is_greeting) const;
  int global_rank(int member) const { return facts_.ranks[static_cast<size_t>(member)]; }
  void start(const MpiTransport& transport);
  void greet(const MpiTransport& transport, Peer& peer);
  void meet(const MpiTransport& transport);
  void check(const Peer& peer) const;
  void take_payload(const Peer& peer);
  void begin_round(const MpiTransport& transport);
  void move(const MpiTransport& transport);

  const MpiGroupFacts& facts_;
  const Call call_;
  MpiPlan plan_;
  std::vector<Peer> peers_;
  std::vector<Transfer> transfers_;  // of the current round, receives first
  size_t round_ = 0;
  bool has_started_ = false, is_ready_ = false, is_done_ = false;
  Time started_, ended_;
};

}  // namespace megatron
