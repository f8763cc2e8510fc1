#include "megatron/comm/mpi/mpi_world.h"

#include <omp.h>

#include <thread>
#include <utility>
#include <vector>

#include "megatron/base/error.h"
#include "megatron/comm/mpi/mpi_hub.h"
#include "megatron/comm/rank_failure.h"
#include "megatron/comm/unwinding.h"

namespace megatron {
namespace {

/// Time for other ranks to receive a failure and to print it: their service threads poll every few milliseconds.
constexpr std::chrono::milliseconds kTimeToReport{1000};

/// The backend's part of one Work.
struct MpiVisit {
  MpiOperationPtr operation;
  OperationInfo info;
};

class MpiPending final : public PendingOperation {
 public:
  explicit MpiPending(MpiHub& hub) : hub_(hub) {}
  ~MpiPending() override {
    for (MpiVisit& visit : visits_)
      if (visit.operation) hub_.abandon(*visit.operation, visit.info, unwinding_.is_under_way());
  }
  MpiPending(const MpiPending&) = delete;
  MpiPending& operator=(const MpiPending&) = delete;

  MpiOperationPtr add(MpiOperationPtr operation, const OperationInfo& info) {
    return visits_.emplace_back(MpiVisit{std::move(operation), info}).operation;
  }
  void wait() override {
    for (MpiVisit& visit : visits_) {
      hub_.wait(*visit.operation, visit.info);
      visit.info.recorder->ended(visit.info.record, visit.operation->started(), visit.operation->ended());
      visit.operation.reset();
    }
    visits_.clear();
  }
  void block() override { wait(); }

 private:
  MpiHub& hub_;
  Unwinding unwinding_;
  std::vector<MpiVisit> visits_;
};

const std::byte* mpi_buffer(const ConstView& view) { return static_cast<const std::byte*>(view.data); }
std::byte* mpi_buffer(const View& view) { return static_cast<std::byte*>(view.data); }

class MpiBackend final : public ProcessGroupBackend {
 public:
  MpiBackend(MpiHub& hub, MpiGroup& group) : hub_(hub), group_(group) {}

  Pending do_all_reduce(const OperationInfo& info, View buffer, ReduceOp reduce) override {
    const OperationKey key{CommOp::kAllReduce, buffer.dtype, buffer.num_elements(), reduce};
    return enter(info, {.key = key}, plan_all_reduce(place(), key, mpi_buffer(buffer)));
  }
  Pending do_reduce_scatter(const OperationInfo& info, ConstView input, View output, ReduceOp reduce) override {
    const OperationKey key{CommOp::kReduceScatter, input.dtype, output.num_elements(), reduce};
    return enter(info, {.key = key}, plan_reduce_scatter(place(), key, mpi_buffer(input), mpi_buffer(output)));
  }
  Pending do_all_gather(const OperationInfo& info, ConstView input, View output) override {
    const OperationKey key{CommOp::kAllGather, input.dtype, input.num_elements()};
    return enter(info, {.key = key}, plan_all_gather(place(), key, mpi_buffer(input), mpi_buffer(output)));
  }
  Pending do_all_to_all(const OperationInfo& info, ConstView input, View output, std::span<const int64_t> send_counts,
                        std::span<const int64_t> receive_counts) override {
    const OperationKey key{CommOp::kAllToAll, input.dtype};
    MpiOperation::Call call{.key = key};
    call.send_counts.assign(send_counts.begin(), send_counts.end());
    call.receive_counts.assign(receive_counts.begin(), receive_counts.end());
    return enter(info, std::move(call),
                 plan_all_to_all(place(), key, mpi_buffer(input), mpi_buffer(output), send_counts, receive_counts));
  }
  Pending do_broadcast(const OperationInfo& info, View buffer, int root) override {
    const OperationKey key{CommOp::kBroadcast, buffer.dtype, buffer.num_elements(), ReduceOp::kSum, root};
    return enter(info, {.key = key}, plan_broadcast(place(), key, mpi_buffer(buffer)));
  }
  Pending do_barrier(const OperationInfo& info) override { return enter(info, {.key = {CommOp::kBarrier}}, {}); }

  Pending do_point_to_point(std::span<const OperationInfo> infos, std::span<const PointToPoint> messages) override {
    auto pending = std::make_unique<MpiPending>(hub_);
    for (size_t i = 0; i < messages.size(); ++i) {
      const PointToPoint& message = messages[i];
      const bool sends = message.op == CommOp::kSend;
      const ConstView buffer = sends ? message.input : message.output;
      const OperationKey key{CommOp::kSend, buffer.dtype, buffer.num_elements(), ReduceOp::kSum, message.tag};
      MpiPlan plan = sends ? plan_send(message.peer, key, mpi_buffer(message.input))
                           : plan_receive(message.peer, key, mpi_buffer(message.output));
      const auto operation = make(infos[i], {.key = key, .peer = message.peer}, std::move(plan));
      hub_.begin([&] { group_.add_message(message.peer, message.tag, message.op, pending->add(operation, infos[i])); });
    }
    return pending;
  }

  void do_copy(ConstView, View) override { throw InternalError("[MpiBackend] a group of one has no backend"); }
  void abort(std::string_view reason) override {
    hub_.fail(fmt::format("[{}] aborted: {}", group_.facts().name, reason));
  }

 private:
  MpiPlace place() const { return {group_.facts().own, static_cast<int>(group_.facts().ranks.size())}; }

  MpiOperationPtr make(const OperationInfo& info, MpiOperation::Call call, MpiPlan plan) const {
    call.op = info.op;
    call.site = info.site;
    call.sequence = info.sequence;
    return std::make_shared<MpiOperation>(group_.facts(), std::move(call), std::move(plan));
  }
  Pending enter(const OperationInfo& info, MpiOperation::Call call, MpiPlan plan) {
    auto pending = std::make_unique<MpiPending>(hub_);
    const auto operation = make(info, std::move(call), std::move(plan));
    hub_.begin([&] { group_.add(pending->add(operation, info)); });
    return pending;
  }

  MpiHub& hub_;
  MpiGroup& group_;
};

class MpiMember final : public World {
 public:
  MpiMember(MpiHub& hub, int rank, int size, std::chrono::milliseconds timeout)
      : World(rank, size, timeout), hub_(hub) {
    hub_.join(recorder());
  }
  ~MpiMember() override { hub_.leave(); }
  void abort(std::string_view reason) override { hub_.fail(fmt::format("aborted by rank {}: {}", rank(), reason)); }

 private:
  std::unique_ptr<ProcessGroupBackend> do_split(std::string_view name, const RankLists& groups, const Membership& own,
                                                const GroupTraits&) override {
    const int split = num_splits_++;
    if (own.group < 0 || groups[static_cast<size_t>(own.group)].size() == 1) return nullptr;
    MpiGroup& group = hub_.make_group(name, groups[static_cast<size_t>(own.group)], own.rank, split);
    return std::make_unique<MpiBackend>(hub_, group);
  }

  MpiHub& hub_;
  int num_splits_ = 0;
};

}  // namespace

MpiWorld::MpiWorld() : transport_(std::make_unique<MpiTransport>()), hub_(std::make_unique<MpiHub>(*transport_)) {}

MpiWorld::~MpiWorld() = default;

int MpiWorld::rank() const { return transport_->rank(); }
int MpiWorld::size() const { return transport_->size(); }

std::unique_ptr<World> MpiWorld::join(int num_ranks, std::chrono::milliseconds timeout) {
  require<ConfigError>(num_ranks <= size(), "[MpiWorld] {} ranks of a job of {}", num_ranks, size());
  return std::make_unique<MpiMember>(*hub_, rank(), num_ranks, timeout);
}

void MpiWorld::abort(std::string_view reason) { hub_->fail(fmt::format("aborted: {}", reason)); }
void MpiWorld::finish(std::chrono::milliseconds timeout, const std::function<void(const std::string&)>& on_hang) {
  hub_->finish(timeout, on_hang);
}

void MpiWorld::end_all(int exit_status) const {
  std::this_thread::sleep_for(hub_->has_failed_elsewhere() ? 2 * kTimeToReport : kTimeToReport);
  transport_->end_all(exit_status);
}

void run_mpi_rank(MpiWorld& ranks, std::chrono::milliseconds timeout, int num_threads,
                  const std::function<void(World&)>& function, const std::function<void(const std::string&)>& on_hang) {
  omp_set_num_threads(num_threads);
  const auto fail = [&](const char* text) {
    const std::string whole = fmt::format("[rank {}] {}", ranks.rank(), text);
    const std::exception_ptr cause = std::current_exception();
    ranks.abort(fmt::format("rank {} failed: {}", ranks.rank(), text));
    throw RankFailure(ranks.rank(), cause, whole);
  };
  try {
    std::unique_ptr<World> world = ranks.join(ranks.size(), timeout);
    function(*world);
    const std::chrono::milliseconds farewell = world->timeout();
    world.reset();
    ranks.finish(farewell, on_hang);
  } catch (const std::exception& error) {
    fail(error.what());
  } catch (...) {
    fail("unknown exception");
  }
}

}  // namespace megatron
