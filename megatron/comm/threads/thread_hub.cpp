#include "megatron/comm/threads/thread_hub.h"

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
    const std::string text = describe_disagreement(split, {known.first_rank, known.name}, {rank, name});
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

std::string ThreadHub::fail(const std::string& text) {
  std::string reason;
  {
    const std::lock_guard lock(mutex_);
    if (failure_.empty()) failure_ = text;
    reason = failure_;
  }
  for (ThreadGroup* group : groups()) group->abort(reason);
  return reason;
}

std::string ThreadHub::time_out(const BlockedOperation& blocked, std::chrono::milliseconds timeout) {
  std::vector<BlockedOperation> others;
  for (const ThreadGroup* group : groups())
    for (BlockedOperation& operation : group->blocked_operations()) others.push_back(std::move(operation));
  return fail(explain_timeout(blocked, timeout, others, [&](int rank) { return describe_rank(rank); }));
}

std::string ThreadHub::describe_rank(int rank) const {
  const std::lock_guard lock(mutex_);
  const FlightRecorder* recorder = recorders_[static_cast<size_t>(rank)];
  if (!recorder)
    return fmt::format(" Rank {} has {}.", rank, has_joined_[static_cast<size_t>(rank)] ? "left" : "never joined");
  return describe_idle_rank(rank, *recorder);
}

}  // namespace megatron
