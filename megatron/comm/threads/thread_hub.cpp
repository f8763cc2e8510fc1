#include "megatron/comm/threads/thread_hub.h"

#include <algorithm>
#include <deque>
#include <set>

#include "megatron/base/error.h"

namespace megatron {

void ThreadHub::join(int rank, const FlightRecorder& recorder) {
  const std::lock_guard lock(mutex_);
  const auto index = static_cast<size_t>(rank);
  require<ConfigError>(!has_joined_[index], "[ThreadWorld] rank {} has joined before", rank);
  has_joined_[index] = true;
  recorders_[index] = &recorder;
}

void ThreadHub::leave(int rank) {
  {
    const std::lock_guard lock(mutex_);
    recorders_[static_cast<size_t>(rank)] = nullptr;
  }
  for (ThreadGroup* group : groups()) group->leave(rank);
}

ThreadGroup* ThreadHub::find_group(int rank, size_t split, std::string_view name, const RankLists& groups, int index) {
  std::unique_lock lock(mutex_);
  if (!failure_.empty()) throw CommError(failure_);
  if (split == splits_.size()) {
    splits_.push_back({rank, std::string(name), groups, {}});
    splits_.back().made.resize(groups.size());
  }
  Split& known = splits_[split];
  if (known.name != name || known.groups != groups) {
    const std::string text = fmt::format(
        "[split] ranks disagree: call {} is \"{}\" on rank {} and \"{}\" on rank {}{}. All ranks make the same groups "
        "in "
        "the same order.",
        split, known.name, known.first_rank, name, rank, known.name == name ? ", with other ranks" : "");
    lock.unlock();
    fail(text);
    throw CommError(text);
  }
  if (index < 0) return nullptr;
  auto& group = known.made[static_cast<size_t>(index)];
  if (!group) group = std::make_unique<ThreadGroup>(*this, name, groups[static_cast<size_t>(index)]);
  return group.get();
}

std::vector<ThreadGroup*> ThreadHub::groups() const {
  const std::lock_guard lock(mutex_);
  std::vector<ThreadGroup*> result;
  for (const Split& split : splits_)
    for (const auto& group : split.made)
      if (group) result.push_back(group.get());
  return result;
}

void ThreadHub::fail(const std::string& text) {
  std::string reason;
  {
    const std::lock_guard lock(mutex_);
    if (failure_.empty()) failure_ = text;
    reason = failure_;
  }
  for (ThreadGroup* group : groups()) group->abort(reason);
}

void ThreadHub::time_out(const BlockedOperation& blocked, std::chrono::milliseconds timeout) {
  std::vector<BlockedOperation> others;
  for (const ThreadGroup* group : groups())
    for (BlockedOperation& operation : group->blocked_operations()) others.push_back(std::move(operation));

  std::string text = fmt::format("{} timed out after {} ms: {} never entered it; {} waiting.", blocked.text,
                                 timeout.count(), describe_ranks(blocked.missing), describe_ranks(blocked.waiting));
  // Follow the chain: a rank that is missing here may be waiting for a third one elsewhere.
  std::deque<int> to_explain(blocked.missing.begin(), blocked.missing.end());
  std::set<int> explained;
  bool has_culprit = false;
  for (; !to_explain.empty(); to_explain.pop_front()) {
    const int rank = to_explain.front();
    if (!explained.insert(rank).second) continue;
    const auto own = std::find_if(others.begin(), others.end(), [&](const BlockedOperation& other) {
      return std::find(other.waiting.begin(), other.waiting.end(), rank) != other.waiting.end();
    });
    if (own == others.end()) {
      has_culprit = true;
      text += describe_rank(rank);
      continue;
    }
    text += fmt::format(" Rank {} waits in {} for {}.", rank, own->text, describe_ranks(own->missing));
    to_explain.insert(to_explain.end(), own->missing.begin(), own->missing.end());
  }
  if (!has_culprit) text += " These ranks wait for each other: they issue operations in different orders.";
  fail(text);
}

std::string ThreadHub::describe_rank(int rank) const {
  const std::lock_guard lock(mutex_);
  const FlightRecorder* recorder = recorders_[static_cast<size_t>(rank)];
  if (!recorder)
    return fmt::format(" Rank {} has {}.", rank, has_joined_[static_cast<size_t>(rank)] ? "left" : "never joined");
  const auto last = recorder->last();
  if (!last) return fmt::format(" Rank {} waits in no operation and has issued none.", rank);
  const std::chrono::duration<double> age = std::chrono::steady_clock::now() - last->enqueued;
  return fmt::format(" Rank {} waits in no operation; its last was {}, {:.1f} s ago.", rank, last->to_string(),
                     age.count());
}

}  // namespace megatron
