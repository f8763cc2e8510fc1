#include "megatron/comm/nccl/nccl_backend.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "megatron/comm/longest_timeout.h"
#include "megatron/comm/nccl/cuda_check.h"
#include "megatron/comm/nccl/section_sum.h"
#include "megatron/comm/unwinding.h"

namespace megatron {
namespace {

class NcclPending final : public PendingOperation {
 public:
  explicit NcclPending(NcclHub& hub) : hub_(hub) {}
  ~NcclPending() override {
    for (Visit& visit : visits_)
      if (visit.flight) hub_.abandon(visit.lane, *visit.flight, unwinding_.is_under_way());
  }
  NcclPending(const NcclPending&) = delete;
  NcclPending& operator=(const NcclPending&) = delete;

  void add(const NcclLane& lane, NcclFlightPtr flight) { visits_.push_back({lane, std::move(flight)}); }
  void wait() override { wait_for_all(false); }
  void block() override { wait_for_all(true); }

 private:
  struct Visit {
    const NcclLane& lane;
    NcclFlightPtr flight;
  };
  void wait_for_all(bool on_host) {
    for (Visit& visit : visits_) {
      hub_.wait(visit.lane, *visit.flight, on_host);
      visit.flight.reset();
    }
    visits_.clear();
  }

  NcclHub& hub_;
  Unwinding unwinding_;
  std::vector<Visit> visits_;
};

/// Calls `call(library, communicator, input, output, stream)` when the lane is connected.
template <class F>
NcclLaunch by_nccl(const NcclLane& lane, F call) {
  return [&lane, call = std::move(call)](const void* in, void* out, NcclLibrary::Stream stream) {
    lane.connection().communicator->use([&](const NcclLibrary& library, NcclLibrary::Communicator communicator) {
      call(library, communicator, in, out, stream);
    });
  };
}

size_t bytes_of(const ConstView& view) { return static_cast<size_t>(view.num_elements() * size_of(view.dtype)); }

NcclOperands operands_of(const ConstView& input, const View& output) {
  return {input.data, bytes_of(input), output.data, bytes_of(output)};
}

std::string describe_transport(const std::string& what, const std::string& obstacle) {
  return obstacle.empty() ? fmt::format("{}: copies between GPUs", what)
                          : fmt::format("{}: NCCL, no copies between GPUs: {}", what, obstacle);
}

/// A waiting receive occupies multiprocessors that other kernels could use, and is posted long before the data
/// arrive: beside one, forward of Llama-3-8B's layers took 20 % longer on an H200 with NCCL's default, 11 % with two.
constexpr int kMultiprocessorsOfMessages = 2;

}  // namespace

NcclBackend::NcclBackend(NcclHub& hub, NcclGroup group)
    : hub_(hub),
      group_(std::move(group)),
      barrier_(hub.resources().pinned.take(sizeof(int32_t) * group_.ranks.size())) {
  std::memset(barrier_.data(), 0, sizeof(int32_t) * group_.ranks.size());
}

/// Destroying a communicator waits for its other ranks: all processes destroy them in the same order.
NcclBackend::~NcclBackend() {
  std::map<std::string, std::unique_ptr<NcclLane>> by_name;
  for (auto& [key, lane] : channels_)
    if (lane) by_name[lane->facts().name] = std::move(lane);
  while (!by_name.empty()) by_name.erase(by_name.begin());
}

void NcclBackend::connect(const Connection& connection, const ConnectionUse& use) {
  if (use.connects_pairs()) require_pairs();
  if (!connection.is_channel())
    collectives(use.largest);
  else if (connection.sender == group_.own)
    channel(connection.receiver, connection.tag, CommOp::kSend, use.largest);
  else
    channel(connection.sender, connection.tag, CommOp::kReceive, use.largest);
}

/// NCCL would connect them lazily inside a step, and might wait without end.
void NcclBackend::require_pairs() const {
  require<CommError>(
      group_.traits.pairwise,
      "[{}] a training step uses all-to-all, and the ranks of the group are not connected in pairs. Make "
      "the group with GroupTraits::pairwise.",
      group_.name);
}

/// Hosts of ranks whose kernels wait for each other would deadlock.
void NcclBackend::require_before_step(std::string_view what) const {
  require<CommError>(!hub_.is_in_step(),
                     "[{}] {} are used for the first time inside a training step, where ranks with a GPU each cannot "
                     "connect. Connect them before it: StepPlan::connections must name them.",
                     group_.name, what);
}

PeerMemory::Made NcclBackend::make_memory(const NcclLane::Facts& lane, int64_t bytes) {
  const auto own = static_cast<int>(std::ranges::find(lane.members, hub_.rank()) - lane.members.begin());
  return PeerMemory::make(static_cast<size_t>(bytes), own, [&, round = 0](const std::string& text) mutable {
    return hub_.meeting().exchange(fmt::format("{}.memory.{}", lane.name, round++), lane.name, lane.members, text);
  });
}

/// All kinds of operations connect at once, because later some could wait for others in another group.
NcclLane& NcclBackend::collectives(int64_t bytes) {
  if (collectives_) return *collectives_;
  require_before_step("collectives");
  collectives_ = std::make_unique<NcclLane>(hub_, NcclLane::Facts{"group." + group_.id, group_.name, group_.ranks},
                                            [this, bytes](const NcclLane::Facts& lane, NcclLibrary::Stream stream) {
                                              return connect_collectives(lane, stream, bytes);
                                            });
  return *collectives_;
}

NcclLane::Connection NcclBackend::connect_collectives(const NcclLane::Facts& lane, NcclLibrary::Stream stream,
                                                      int64_t bytes) {
  NcclLane::Connection connection{.communicator = hub_.make_communicator(lane)};
  connection.communicator->connect_collectives(numbers(), group_.own, stream);
  if (group_.traits.pairwise)
    connection.communicator->connect_pairs(numbers(), static_cast<int>(group_.ranks.size()), stream);
  if (!is_copied() || bytes == 0) return connection;  // the same on all members
  const auto num_ranks = static_cast<int>(group_.ranks.size());
  std::string obstacle = fmt::format("there are more than {} ranks", CopiedGroups::kMostRanks);
  if (num_ranks <= CopiedGroups::kMostRanks) {
    PeerMemory::Made made = make_memory(lane, CopiedGroups::row_bytes(num_ranks, bytes));
    obstacle = made.obstacle;
    if (made.memory) connection.copies = std::make_unique<PeerCopies>(std::move(made.memory));
  }
  connection.transport = describe_transport(fmt::format("collectives of {}", group_.name), obstacle);
  return connection;
}

NcclBackend::Pending NcclBackend::enter(const OperationInfo& info, const NcclOperands& operands, NcclLaunch launch) {
  auto pending = std::make_unique<NcclPending>(hub_);
  NcclLane& lane = collectives();
  pending->add(lane, lane.issue(info, operands, std::move(launch)));
  return pending;
}

NcclBackend::Pending NcclBackend::do_all_reduce(const OperationInfo& info, View buffer, ReduceOp reduce) {
  const auto count = static_cast<size_t>(buffer.num_elements());
  return enter(
      info, operands_of(buffer, buffer),
      by_nccl(collectives(), [=, dtype = buffer.dtype](auto& nccl, auto communicator, auto in, auto out, auto stream) {
        nccl.all_reduce(in, out, count, dtype, reduce, communicator, stream);
      }));
}

NcclBackend::Pending NcclBackend::do_reduce_scatter(const OperationInfo& info, ConstView input, View output,
                                                    ReduceOp reduce) {
  const auto count = static_cast<size_t>(output.num_elements());
  const DType dtype = input.dtype;
  NcclLaunch scatter = by_nccl(collectives(), [=](auto& nccl, auto communicator, auto in, auto out, auto stream) {
    nccl.reduce_scatter(in, out, count, dtype, reduce, communicator, stream);
  });
  if (reduce != ReduceOp::kSum || !sums_sections_of(dtype))
    return enter(info, operands_of(input, output), std::move(scatter));
  return enter(info, operands_of(input, output),
               [=, &lane = collectives(), scatter = std::move(scatter)](auto in, auto out, auto stream) {
                 if (PeerCopies* copies = lane.connection().copies.get())
                   copies->reduce_scatter(in, out, count, dtype, stream);
                 else
                   scatter(in, out, stream);
               });
}

NcclBackend::Pending NcclBackend::do_all_gather(const OperationInfo& info, ConstView input, View output) {
  const size_t bytes = bytes_of(input);
  NcclLaunch gather = by_nccl(collectives(), [=](auto& nccl, auto communicator, auto in, auto out, auto stream) {
    nccl.all_gather(in, out, bytes, communicator, stream);
  });
  return enter(info, operands_of(input, output),
               [=, &lane = collectives(), gather = std::move(gather)](auto in, auto out, auto stream) {
                 if (PeerCopies* copies = lane.connection().copies.get())
                   copies->all_gather(in, out, bytes, stream);
                 else
                   gather(in, out, stream);
               });
}

NcclBackend::Pending NcclBackend::do_all_to_all(const OperationInfo& info, ConstView input, View output,
                                                std::span<const int64_t> send_counts,
                                                std::span<const int64_t> receive_counts) {
  if (hub_.is_in_step()) require_pairs();
  const auto element = static_cast<size_t>(size_of(input.dtype));
  std::vector<std::pair<size_t, size_t>> bytes;  // to and from each rank
  for (size_t peer = 0; peer < send_counts.size(); ++peer)
    bytes.emplace_back(static_cast<size_t>(send_counts[peer]) * element,
                       static_cast<size_t>(receive_counts[peer]) * element);
  return enter(
      info, operands_of(input, output),
      by_nccl(collectives(), [bytes = std::move(bytes)](auto& nccl, auto communicator, auto in, auto out, auto stream) {
        const auto* from = static_cast<const std::byte*>(in);
        auto* to = static_cast<std::byte*>(out);
        nccl.group_start();
        for (size_t peer = 0; peer < bytes.size(); ++peer) {
          const auto [sent, received] = bytes[peer];
          if (sent > 0) nccl.send(from, sent, static_cast<int>(peer), communicator, stream);
          if (received > 0) nccl.receive(to, received, static_cast<int>(peer), communicator, stream);
          from += sent;
          to += received;
        }
        nccl.group_end();
      }));
}

NcclBackend::Pending NcclBackend::do_broadcast(const OperationInfo& info, View buffer, int root) {
  return enter(info, operands_of(buffer, buffer),
               by_nccl(collectives(), [root, own = group_.own, bytes = bytes_of(buffer)](
                                          auto& nccl, auto communicator, auto in, auto out, auto stream) {
                 // Host memory has two copies; the root's values are in the first.
                 nccl.broadcast(own == root ? in : out, out, bytes, root, communicator, stream);
               }));
}

NcclBackend::Pending NcclBackend::do_barrier(const OperationInfo& info) {
  return enter(
      info, {},
      by_nccl(collectives(), [buffer = barrier_.data()](auto& nccl, auto communicator, auto, auto, auto stream) {
        nccl.all_reduce(buffer, buffer, 1, DType::kInt32, ReduceOp::kSum, communicator, stream);
      }));
}

NcclLane& NcclBackend::channel(int peer, int tag, CommOp op, int64_t bytes) {
  auto& lane = channels_[{peer, tag, op}];
  if (lane) return *lane;
  const bool sends = op == CommOp::kSend;
  require_before_step(fmt::format("sends of tag {} {} its rank {}", tag, sends ? "to" : "from", peer));
  const int own = group_.ranks[static_cast<size_t>(group_.own)], other = group_.ranks[static_cast<size_t>(peer)];
  const std::vector<int> members = sends ? std::vector{own, other} : std::vector{other, own};
  const std::string name = fmt::format("messages.{}.{}.{}.{}", group_.id, members[0], members[1], tag);
  lane = std::make_unique<NcclLane>(hub_, NcclLane::Facts{name, group_.name, members},
                                    [this, bytes](const NcclLane::Facts& facts, NcclLibrary::Stream stream) {
                                      return connect_messages(facts, stream, bytes);
                                    });
  return *lane;
}

NcclLane::Connection NcclBackend::connect_messages(const NcclLane::Facts& lane, NcclLibrary::Stream stream,
                                                   int64_t bytes) {
  const bool sends = lane.members[0] == hub_.rank();
  NcclLane::Connection connection;
  if (is_copied()) {
    PeerMemory::Made made = make_memory(lane, sends ? 0 : CopiedGroups::message_bytes(bytes));
    connection.transport = describe_transport(fmt::format("sends of {}", group_.name), made.obstacle);
    if (made.memory) connection.messages = std::make_unique<PeerMessages>(std::move(made.memory));
  }
  if (connection.messages) return connection;
  connection.communicator = hub_.make_communicator(lane, kMultiprocessorsOfMessages);
  connection.communicator->connect_messages(numbers(), sends, stream);
  return connection;
}

NcclBackend::Pending NcclBackend::do_point_to_point(std::span<const OperationInfo> infos,
                                                    std::span<const PointToPoint> messages) {
  auto pending = std::make_unique<NcclPending>(hub_);
  for (size_t i = 0; i < messages.size(); ++i) {
    const PointToPoint& message = messages[i];
    NcclLane& lane = channel(message.peer, message.tag, message.op);
    const bool sends = message.op == CommOp::kSend;
    const size_t bytes = bytes_of(sends ? message.input : ConstView(message.output));
    const NcclLaunch by_kernel = by_nccl(lane, [=](auto& nccl, auto communicator, auto in, auto out, auto stream) {
      sends ? nccl.send(in, bytes, 1, communicator, stream) : nccl.receive(out, bytes, 0, communicator, stream);
    });
    const auto launch = [=, &lane](auto in, auto out, auto stream) {
      if (bytes == 0) return;
      if (PeerMessages* copies = lane.connection().messages.get())
        sends ? copies->send(in, bytes, stream) : copies->receive(out, bytes, stream);
      else
        by_kernel(in, out, stream);
    };
    const NcclOperands operands = sends ? NcclOperands{message.input.data, bytes, nullptr, 0}
                                        : NcclOperands{nullptr, 0, message.output.data, bytes};
    pending->add(lane, lane.issue(infos[i], operands, launch));
  }
  return pending;
}

void NcclBackend::do_copy(ConstView input, View output) {
  if (input.num_elements() == 0 || input.data == output.data) return;
  const bool reads_host = is_host_memory(input.data), writes_host = is_host_memory(output.data);
  if (reads_host && writes_host) {
    std::memcpy(output.data, input.data, bytes_of(input));
    return;
  }
  const NcclLibrary::Stream stream = hub_.resources().compute;
  check_cuda_call(cudaMemcpyAsync(output.data, input.data, bytes_of(input), cudaMemcpyDefault, stream),
                  "cudaMemcpyAsync");
  // The host may use its memory at once, so the operation counts as done.
  if (reads_host || writes_host) check_cuda_call(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
}

void NcclBackend::abort(std::string_view reason) { hub_.fail(fmt::format("[{}] aborted: {}", group_.name, reason)); }

}  // namespace megatron
