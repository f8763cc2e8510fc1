// A process group whose members are threads of one process: the shared part.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "megatron/comm/blocked_operation.h"
#include "megatron/comm/threads/meeting.h"

namespace megatron {

class ThreadHub;
using MeetingPtr = std::shared_ptr<Meeting>;

/// Members meet once for each operation: collectives by their number, sends by their order in the channel. A meeting
/// that all have entered needs no particular thread: waiting threads claim pieces of it, so an operation ends although
/// some members are busy elsewhere. Ranks that wait sleep; none spins. Thread-safe.
class ThreadGroup {
 public:
  /// A channel between two group ranks. Sends of a channel keep their order.
  struct Channel {
    int sender = 0, receiver = 0, tag = 0;
    auto operator<=>(const Channel&) const = default;
  };

  ThreadGroup(ThreadHub& hub, std::string_view name, std::vector<int> ranks);

  /// Group rank `rank` takes part in collective number `visit.sequence`.
  /// @throw CommError if the group has failed, a member is lost, or the ranks disagree.
  MeetingPtr enter(int rank, const OperationKey& key, MeetingMember visit);
  /// The sender or the receiver (visit.op) takes part in the next send of the channel. @throw as above
  MeetingPtr enter(const Channel& channel, const OperationKey& key, MeetingMember visit);

  /// Shares the work of the meeting and returns when it is done. `index` is the caller's member of the meeting.
  /// @throw CommError if it failed, once no thread touches the member's buffers any more.
  void wait(const MeetingPtr& meeting, size_t index, const OperationInfo& info);
  /// For a member that drops the operation: completes a meeting that all have entered; fails the world otherwise.
  /// Returns when no thread touches the member's buffers any more.
  void abandon(const MeetingPtr& meeting, size_t index, const OperationInfo& info, bool is_unwinding) noexcept;

  /// Fails the group; the first reason stays.
  void abort(std::string_view reason);
  /// This global rank will enter no more operations.
  void leave(int global_rank);
  std::vector<BlockedOperation> blocked_operations() const;
  const std::string& name() const { return name_; }

 private:
  using Lock = std::unique_lock<std::mutex>;
  /// Unlocks. Fails the world if members of the meeting disagree.
  void join(Lock lock, const MeetingPtr& meeting, size_t index, const OperationKey& key, MeetingMember visit);
  MeetingPtr find_runnable(const MeetingPtr& wanted);
  void run(const MeetingPtr& meeting, Lock& lock);
  static void wait_for_runs(Meeting& meeting);
  void time_out(Meeting& meeting, size_t index, std::chrono::milliseconds timeout);
  void remove_done_collectives();
  void throw_if_failed() const;
  [[noreturn]] void fail(Lock lock, const std::string& text);
  std::string find_lost(Meeting& meeting) const;
  std::string describe(Meeting& meeting, size_t index) const;
  template <class Function>
  void for_each_meeting(Function&& function) const;

  ThreadHub& hub_;
  const std::string name_;
  const std::vector<int> ranks_;  // global
  const size_t max_threads_;      // that can share the work of a meeting: cores

  mutable std::mutex mutex_;            // guards all below and the meetings; the hub is never called with it held
  std::deque<MeetingPtr> collectives_;  // from number first_sequence_ on; the first is seldom done
  int64_t first_sequence_ = 0;
  /// Entered by the same side in each queue; the first possibly by both.
  std::map<Channel, std::deque<MeetingPtr>> messages_;
  std::set<int> lost_;  // global ranks
  std::string failure_;
  std::atomic<bool> has_failed_{false};  // read while pieces run; else as failure_
};

}  // namespace megatron
