#include "megatron/comm/threads/thread_group.h"

#include <algorithm>
#include <thread>

#include "megatron/base/error.h"
#include "megatron/comm/flight_recorder.h"
#include "megatron/comm/threads/deadline.h"
#include "megatron/comm/threads/thread_hub.h"

namespace megatron {
namespace {

using Clock = std::chrono::steady_clock;

bool is_message(const Meeting& meeting) { return meeting.key().op == CommOp::kSend; }
bool is_runnable(const Meeting& meeting) { return meeting.is_ready() && meeting.has_unclaimed_pieces(); }

}  // namespace

ThreadGroup::ThreadGroup(ThreadHub& hub, std::string_view name, std::vector<int> ranks)
    : hub_(hub),
      name_(name),
      ranks_(std::move(ranks)),
      max_threads_(std::max(1u, std::thread::hardware_concurrency())) {}

MeetingPtr ThreadGroup::enter(int rank, const OperationKey& key, MeetingMember visit) {
  Lock lock(mutex_);
  throw_if_failed();
  const auto position = static_cast<size_t>(visit.sequence - first_sequence_);
  if (position == collectives_.size()) collectives_.push_back(std::make_shared<Meeting>(key, ranks_));
  MeetingPtr meeting = collectives_[position];
  join(std::move(lock), meeting, static_cast<size_t>(rank), key, std::move(visit));
  return meeting;
}

MeetingPtr ThreadGroup::enter(const Channel& channel, const OperationKey& key, MeetingMember visit) {
  Lock lock(mutex_);
  throw_if_failed();
  const size_t index = visit.op == CommOp::kSend ? 0 : 1;
  auto& queue = messages_[channel];
  while (!queue.empty() && queue.front()->is_ready()) queue.pop_front();
  MeetingPtr meeting;
  if (!queue.empty() && !queue.front()->member(index).has_entered) {
    meeting = queue.front();  // stays in the queue: if the two sides disagree, the other one must see it
  } else {
    const auto global = [&](int rank) { return ranks_[static_cast<size_t>(rank)]; };
    meeting = std::make_shared<Meeting>(key, std::vector{global(channel.sender), global(channel.receiver)});
    queue.push_back(meeting);
  }
  join(std::move(lock), meeting, index, key, std::move(visit));
  return meeting;
}

void ThreadGroup::join(Lock lock, const MeetingPtr& meeting, size_t index, const OperationKey& key,
                       MeetingMember visit) {
  if (key != meeting->key()) {
    const size_t first = meeting->first_entered();
    meeting->member(index) = std::move(visit);
    fail(std::move(lock),
         describe_disagreement(name_, {meeting->rank(first), meeting->key(), describe(*meeting, first)},
                               {meeting->rank(index), key, describe(*meeting, index)}));
  }
  meeting->enter(index, std::move(visit));
  if (!meeting->is_ready()) {
    const std::string lost = find_lost(*meeting);
    if (!lost.empty()) fail(std::move(lock), lost);
    return;
  }
  const std::string disagreement = meeting->find_disagreement();
  if (!disagreement.empty())
    fail(std::move(lock),
         fmt::format("[{}] ranks disagree in {}: {}.", name_, describe(*meeting, index), disagreement));
  if (meeting->num_pieces() == 1 && find_runnable(meeting) == meeting)
    return run(meeting, lock);  // the others wake up once, when it is done
  remove_done_collectives();
  lock.unlock();
  // The others sleep. If there is work, wake as many as can share it with this rank, and at least one: this rank may
  // not wait for the meeting now.
  const int num_helpers = static_cast<int>(std::min(meeting->num_pieces(), max_threads_)) - 1;
  meeting->changed().announce(meeting->is_done() ? INT_MAX : std::max(1, num_helpers));
}

void ThreadGroup::wait(const MeetingPtr& meeting, size_t index, const OperationInfo& info) {
  Deadline deadline(Clock::now(), info.timeout);
  while (true) {
    const EventCount::Ticket ticket = meeting->changed().ticket();
    if (meeting->is_done()) return;  // the usual wake-up takes no lock, so threads do not contend
    Lock lock(mutex_);
    bool& is_waiting = meeting->member(index).is_waiting;
    if (has_failed_) {
      is_waiting = false;
      lock.unlock();
      wait_for_runs(*meeting);
      throw CommError(failure_);
    }
    if (const MeetingPtr next = find_runnable(meeting)) {
      run(next, lock);
      continue;
    }
    if (!std::exchange(is_waiting, true)) info.recorder->waited(info.record, Clock::now());
    const bool is_ready = meeting->is_ready();  // others run the last pieces
    lock.unlock();
    if (!meeting->changed().wait(ticket, is_ready ? Clock::time_point::max() : deadline.time()) &&
        deadline.has_passed(Clock::now()))
      time_out(*meeting, index, info.timeout);
  }
}

/// For a failed group: returns when no thread touches the buffers of the meeting any more.
void ThreadGroup::wait_for_runs(Meeting& meeting) {
  while (true) {
    const EventCount::Ticket ticket = meeting.changed().ticket();
    if (!meeting.is_running()) return;
    meeting.changed().wait(ticket);
  }
}

void ThreadGroup::time_out(Meeting& meeting, size_t index, std::chrono::milliseconds timeout) {
  Lock lock(mutex_);
  if (meeting.is_ready() || has_failed_) return;
  const BlockedOperation blocked{describe(meeting, index), meeting.waiting_ranks(), meeting.missing_ranks()};
  lock.unlock();
  hub_.time_out(blocked, timeout);
}

void ThreadGroup::abandon(const MeetingPtr& meeting, size_t index, const OperationInfo& info,
                          bool is_unwinding) noexcept {
  try {
    Lock lock(mutex_);
    if (!meeting->is_ready() && !has_failed_)
      fail(std::move(lock),
           explain_drop(meeting->rank(index), describe(*meeting, index), meeting->missing_ranks(), is_unwinding));
  } catch (const CommError&) {
  }
  try {
    wait(meeting, index, info);
  } catch (const CommError&) {
  }
}

/// Collectives run one after the other: a later one may read results of an earlier one. If `wanted` is ready, all
/// before it are, because each rank entered them before.
MeetingPtr ThreadGroup::find_runnable(const MeetingPtr& wanted) {
  if (is_message(*wanted)) return is_runnable(*wanted) ? wanted : nullptr;
  remove_done_collectives();
  return !collectives_.empty() && is_runnable(*collectives_.front()) ? collectives_.front() : nullptr;
}

void ThreadGroup::run(const MeetingPtr& meeting, Lock& lock) {
  meeting->begin_run();
  lock.unlock();
  meeting->run_pieces(has_failed_);
  if (meeting->is_done() || has_failed_) meeting->changed().announce();
  lock.lock();
  remove_done_collectives();
  if (collectives_.empty() || !is_runnable(*collectives_.front())) return;
  for (const MeetingPtr& next : collectives_)  // threads that wait for one of these can run the first now
    if (next->is_ready()) next->changed().announce();
}

void ThreadGroup::remove_done_collectives() {
  while (!collectives_.empty() && collectives_.front()->is_done()) {
    collectives_.pop_front();
    ++first_sequence_;
  }
}

void ThreadGroup::throw_if_failed() const {
  if (has_failed_) throw CommError(failure_);
}

void ThreadGroup::fail(Lock lock, const std::string& text) {
  lock.unlock();
  hub_.fail(text);
  lock.lock();
  throw CommError(failure_);
}

void ThreadGroup::abort(std::string_view reason) {
  {
    const std::lock_guard lock(mutex_);
    if (!has_failed_) failure_ = reason;
    has_failed_ = true;
    for_each_meeting([](Meeting& meeting) { meeting.changed().announce(); });
  }
}

void ThreadGroup::leave(int global_rank) {
  std::string problem;
  {
    const std::lock_guard lock(mutex_);
    if (std::find(ranks_.begin(), ranks_.end(), global_rank) == ranks_.end()) return;
    lost_.insert(global_rank);
    for_each_meeting([&](Meeting& meeting) {
      if (problem.empty()) problem = find_lost(meeting);
    });
  }
  if (!problem.empty()) hub_.fail(problem);
}

std::vector<BlockedOperation> ThreadGroup::blocked_operations() const {
  const std::lock_guard lock(mutex_);
  std::vector<BlockedOperation> blocked;
  for_each_meeting([&](Meeting& meeting) {
    auto waiting = meeting.waiting_ranks();
    if (!meeting.is_ready() && !waiting.empty())
      blocked.push_back({describe(meeting, meeting.first_entered()), std::move(waiting), meeting.missing_ranks()});
  });
  return blocked;
}

template <class Function>
void ThreadGroup::for_each_meeting(Function&& function) const {
  for (const MeetingPtr& meeting : collectives_) function(*meeting);
  for (const auto& [channel, queue] : messages_)
    for (const MeetingPtr& meeting : queue) function(*meeting);
}

std::string ThreadGroup::find_lost(Meeting& meeting) const {
  for (int rank : meeting.missing_ranks())
    if (lost_.contains(rank))
      return fmt::format("{} cannot complete: rank {} has left without entering it",
                         describe(meeting, meeting.first_entered()), rank);
  return {};
}

std::string ThreadGroup::describe(Meeting& meeting, size_t index) const {
  const MeetingMember& member = meeting.member(index);
  return megatron::describe(member.op, member.sequence, member.site.view(), name_);
}

}  // namespace megatron
