#include "megatron/comm/threads/thread_world.h"

#include <vector>

#include "megatron/base/error.h"
#include "megatron/comm/threads/thread_hub.h"
#include "megatron/comm/unwinding.h"

namespace megatron {
namespace {

/// One rank's part in one meeting.
struct ThreadVisit {
  MeetingPtr meeting;
  size_t index;  // member of the meeting
  OperationInfo info;
};

class ThreadPending final : public PendingOperation {
 public:
  explicit ThreadPending(ThreadGroup& group) : group_(group) {}
  ~ThreadPending() override {
    for (ThreadVisit& visit : visits_)
      if (visit.meeting) group_.abandon(visit.meeting, visit.index, visit.info, unwinding_.is_under_way());
  }
  ThreadPending(const ThreadPending&) = delete;
  ThreadPending& operator=(const ThreadPending&) = delete;

  void add(ThreadVisit visit) { visits_.push_back(std::move(visit)); }
  void wait() override {
    for (ThreadVisit& visit : visits_) {
      group_.wait(visit.meeting, visit.index, visit.info);
      visit.info.recorder->ended(visit.info.record, visit.meeting->started(), visit.meeting->ended());
      visit.meeting.reset();
    }
    visits_.clear();
  }
  void block() override { wait(); }

 private:
  ThreadGroup& group_;
  Unwinding unwinding_;
  std::vector<ThreadVisit> visits_;
};

const std::byte* shared_bytes(const ConstView& view) { return static_cast<const std::byte*>(view.data); }
std::byte* shared_bytes(const View& view) { return static_cast<std::byte*>(view.data); }

class ThreadBackend final : public ProcessGroupBackend {
 public:
  ThreadBackend(ThreadGroup& group, int rank) : group_(group), rank_(rank) {}

  Pending do_all_reduce(const OperationInfo& info, View buffer, ReduceOp reduce) override {
    return enter(info, {CommOp::kAllReduce, buffer.dtype, buffer.num_elements(), reduce}, buffer, buffer);
  }
  Pending do_reduce_scatter(const OperationInfo& info, ConstView input, View output, ReduceOp reduce) override {
    return enter(info, {CommOp::kReduceScatter, input.dtype, output.num_elements(), reduce}, input, output);
  }
  Pending do_all_gather(const OperationInfo& info, ConstView input, View output) override {
    return enter(info, {CommOp::kAllGather, input.dtype, input.num_elements()}, input, output);
  }
  Pending do_all_to_all(const OperationInfo& info, ConstView input, View output, std::span<const int64_t> send_counts,
                        std::span<const int64_t> receive_counts) override {
    MeetingMember member = visitor(info, input, output);
    member.send_counts.assign(send_counts.begin(), send_counts.end());
    member.receive_counts.assign(receive_counts.begin(), receive_counts.end());
    return enter(info, {CommOp::kAllToAll, input.dtype}, std::move(member));
  }
  Pending do_broadcast(const OperationInfo& info, View buffer, int root) override {
    return enter(info, {CommOp::kBroadcast, buffer.dtype, buffer.num_elements(), ReduceOp::kSum, root}, buffer, buffer);
  }
  Pending do_barrier(const OperationInfo& info) override { return enter(info, {CommOp::kBarrier}, {}, {}); }

  Pending do_point_to_point(std::span<const OperationInfo> infos, std::span<const PointToPoint> messages) override {
    auto pending = std::make_unique<ThreadPending>(group_);
    for (size_t i = 0; i < messages.size(); ++i) {
      const PointToPoint& message = messages[i];
      const bool sends = message.op == CommOp::kSend;
      const ConstView buffer = sends ? message.input : message.output;
      const OperationKey key{CommOp::kSend, buffer.dtype, buffer.num_elements(), ReduceOp::kSum, message.tag};
      const ThreadGroup::Channel channel{sends ? rank_ : message.peer, sends ? message.peer : rank_, message.tag};
      pending->add(
          {group_.enter(channel, key, visitor(infos[i], message.input, message.output)), sends ? 0u : 1u, infos[i]});
    }
    return pending;
  }

  void do_copy(ConstView, View) override { throw InternalError("[ThreadBackend] a group of one has no backend"); }
  void abort(std::string_view reason) override { group_.abort(fmt::format("[{}] aborted: {}", group_.name(), reason)); }

 private:
  static MeetingMember visitor(const OperationInfo& info, const ConstView& input, const View& output) {
    MeetingMember member;
    member.input = shared_bytes(input);
    member.output = shared_bytes(output);
    member.site = info.site;
    member.sequence = info.sequence;
    member.op = info.op;
    return member;
  }
  Pending enter(const OperationInfo& info, const OperationKey& key, const ConstView& input, const View& output) {
    return enter(info, key, visitor(info, input, output));
  }
  Pending enter(const OperationInfo& info, const OperationKey& key, MeetingMember member) {
    auto pending = std::make_unique<ThreadPending>(group_);
    pending->add({group_.enter(rank_, key, std::move(member)), static_cast<size_t>(rank_), info});
    return pending;
  }

  ThreadGroup& group_;
  int rank_;
};

class ThreadMember final : public World {
 public:
  ThreadMember(ThreadHub& hub, int rank, int size, std::chrono::milliseconds timeout)
      : World(rank, size, timeout), hub_(hub) {
    hub_.join(rank, recorder());
  }
  ~ThreadMember() override { hub_.leave(rank()); }
  void abort(std::string_view reason) override { hub_.fail(fmt::format("aborted by rank {}: {}", rank(), reason)); }

 private:
  std::unique_ptr<ProcessGroupBackend> do_split(std::string_view name, const RankLists& groups, const Membership& own,
                                                const GroupTraits&) override {
    const bool has_others = own.group >= 0 && groups[static_cast<size_t>(own.group)].size() > 1;
    ThreadGroup* group = hub_.find_group(rank(), num_splits_++, name, groups, has_others ? own.group : -1);
    return group ? std::make_unique<ThreadBackend>(*group, own.rank) : nullptr;
  }

  ThreadHub& hub_;
  size_t num_splits_ = 0;
};

}  // namespace

ThreadWorld::ThreadWorld(int size, std::chrono::milliseconds timeout) : size_(size), timeout_(timeout) {
  require<ConfigError>(size > 0, "[ThreadWorld] {} ranks; at least one is needed", size);
  hub_ = std::make_unique<ThreadHub>(size);
}

ThreadWorld::~ThreadWorld() = default;

std::unique_ptr<World> ThreadWorld::join(int rank) {
  return std::make_unique<ThreadMember>(*hub_, rank, size_, timeout_);
}

std::string ThreadWorld::time_out(const BlockedOperation& blocked, std::chrono::milliseconds timeout) {
  return hub_->time_out(blocked, timeout);
}
void ThreadWorld::abort(std::string_view reason) { hub_->fail(fmt::format("aborted: {}", reason)); }

}  // namespace megatron
