// One operation of ranks as threads: the operands of each rank, and the progress of the work.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "megatron/comm/operation_key.h"
#include "megatron/comm/threads/event_count.h"

namespace megatron {

/// The operands of one member. Buffers stay readable and writable until the meeting is done or the member is released.
struct MeetingMember {
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::vector<int64_t> send_counts, receive_counts;  // all_to_all: elements
  Site site;
  int64_t sequence = 0;
  CommOp op = CommOp::kBarrier;  // the member's own name for it: send or recv
  bool has_entered = false;
  bool is_waiting = false;
};

/// The group's mutex guards everything that is not marked otherwise. The work is cut into pieces that any thread
/// may claim; the result does not depend on the cut, as a piece forms its elements in rank order
/// (reduce_in_rank_order). In a point-to-point operation member 0 sends and member 1 receives.
class Meeting {
 public:
  using Time = std::chrono::steady_clock::time_point;
  /// @param ranks global ranks of the members
  Meeting(const OperationKey& key, std::vector<int> ranks)
      : key_(key), ranks_(std::move(ranks)), members_(ranks_.size()) {}

  const OperationKey& key() const { return key_; }
  MeetingMember& member(size_t index) { return members_[index]; }
  int rank(size_t index) const { return ranks_[index]; }
  /// A member that has entered. There is always one.
  size_t first_entered() const;
  /// Global ranks of members that have not entered, and of those that sleep until the meeting is done.
  std::vector<int> missing_ranks() const;
  std::vector<int> waiting_ranks() const;

  /// Adds a member. The last one makes the meeting ready.
  void enter(size_t index, MeetingMember member);
  bool is_ready() const { return is_ready_; }
  /// A disagreement of members beyond their keys; empty if none. For a ready meeting.
  std::string find_disagreement() const;

  bool has_unclaimed_pieces() const { return next_piece_.load(std::memory_order_relaxed) < pieces_.size(); }
  size_t num_pieces() const { return pieces_.size(); }
  /// Announces that the caller will call run_pieces().
  void begin_run() { ++num_running_; }
  /// Claims and runs pieces until none is left or `stop` is set. Any number of threads at once, without the mutex.
  void run_pieces(const std::atomic<bool>& stop);
  bool is_running() const { return num_running_ > 0; }  // without the mutex
  /// Without the mutex. When true, the results of the pieces, started() and ended() may be read.
  bool is_done() const { return is_done_; }
  Time started() const { return started_; }
  Time ended() const { return ended_; }
  /// Announces that the meeting is ready or done, that a run has ended early, or that the group has failed.
  EventCount& changed() { return changed_; }

 private:
  static constexpr size_t kAll = SIZE_MAX;
  /// bytes of the inputs of `source` reduced or copied to the outputs of `destination`.
  struct Piece {
    size_t source, destination;
    int64_t input_offset, output_offset, bytes;
  };
  void plan();
  void plan_all_to_all();
  void add(Piece whole);
  void run(const Piece& piece) const;

  const OperationKey key_;
  const std::vector<int> ranks_;
  std::vector<MeetingMember> members_;
  size_t num_entered_ = 0;
  bool is_ready_ = false;
  std::vector<Piece> pieces_;
  std::atomic<size_t> next_piece_{0}, num_pieces_done_{0};
  std::atomic<int> num_running_{0};
  std::atomic<bool> is_done_{false};
  Time started_, ended_;
  EventCount changed_;
};

}  // namespace megatron
