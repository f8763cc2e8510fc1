// A world that notes what its groups connect for.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "megatron/comm/connection.h"
#include "megatron/comm/world.h"

namespace megatron::testing {

/// Passes everything to a group of the real world.
class NotedBackend final : public ProcessGroupBackend {
 public:
  NotedBackend(const ProcessGroup& real, Connections& connections) : real_(real), connections_(connections) {}

  Pending do_all_reduce(const OperationInfo& info, View buffer, ReduceOp reduce) override {
    return collective(info, real_.all_reduce(buffer, reduce, {.site = info.site.view()}), bytes_of(buffer));
  }
  Pending do_reduce_scatter(const OperationInfo& info, ConstView input, View output, ReduceOp reduce) override {
    return collective(info, real_.reduce_scatter(input, output, reduce, {.site = info.site.view()}), bytes_of(input),
                      bytes_of(output));
  }
  Pending do_all_gather(const OperationInfo& info, ConstView input, View output) override {
    return collective(info, real_.all_gather(input, output, {.site = info.site.view()}), bytes_of(output),
                      bytes_of(input));
  }
  Pending do_all_to_all(const OperationInfo& info, ConstView input, View output, std::span<const int64_t> send_counts,
                        std::span<const int64_t> receive_counts) override {
    const Shape in{input.num_elements()}, out{output.num_elements()};  // counts are of elements
    Work work = real_.all_to_all({input.data, input.dtype, in, in.contiguous_strides()},
                                 {output.data, output.dtype, out, out.contiguous_strides()}, send_counts,
                                 receive_counts, {.site = info.site.view()});
    return collective(info, std::move(work), std::max(bytes_of(input), bytes_of(output)));
  }
  Pending do_broadcast(const OperationInfo& info, View buffer, int root) override {
    return collective(info, real_.broadcast(buffer, root, {.site = info.site.view()}), bytes_of(buffer));
  }
  Pending do_barrier(const OperationInfo& info) override {
    return collective(info, real_.barrier({.site = info.site.view()}), 0);
  }
  Pending do_point_to_point(std::span<const OperationInfo> infos, std::span<const PointToPoint> messages) override {
    for (const PointToPoint& message : messages) {
      const bool sends = message.op == CommOp::kSend;
      const int own = real_.rank(), peer = message.peer;
      const int64_t bytes = bytes_of(sends ? message.input : ConstView(message.output));
      note(connections_,
           {.group = std::string(real_.name()),
            .sender = sends ? own : peer,
            .receiver = sends ? peer : own,
            .tag = message.tag},
           real_.traits(), message.op, bytes, bytes);
    }
    return std::make_unique<Operation>(real_.batch(messages, {.site = infos[0].site.view()}));
  }
  void do_copy(ConstView input, View output) override { real_.all_gather(input, output, {.site = "copy"}).wait(); }
  void abort(std::string_view reason) override { real_.abort(reason); }

 private:
  class Operation final : public PendingOperation {
   public:
    explicit Operation(Work work) : work_(std::move(work)) {}
    void wait() override { work_.wait(); }
    void block() override { work_.block(); }

   private:
    Work work_;
  };
  static int64_t bytes_of(const ConstView& view) { return view.num_elements() * size_of(view.dtype); }
  Pending collective(const OperationInfo& info, Work work, int64_t bytes, int64_t section = 0) {
    note(connections_, {.group = std::string(real_.name())}, real_.traits(), info.op, bytes, section);
    return std::make_unique<Operation>(std::move(work));
  }

  ProcessGroup real_;
  Connections& connections_;
};

/// `real` outlives it.
class NotedWorld final : public World {
 public:
  explicit NotedWorld(World& real) : World(real.rank(), real.size(), real.timeout()), real_(real) {}
  void abort(std::string_view reason) override { real_.abort(reason); }
  const Connections& connections() const { return connections_; }
  void forget() { connections_.clear(); }

 private:
  std::unique_ptr<ProcessGroupBackend> do_split(std::string_view name, const RankLists& groups, const Membership& own,
                                                const GroupTraits& traits) override {
    const auto group = real_.split(name, groups, traits);
    return own.group < 0 ? nullptr : std::make_unique<NotedBackend>(*group, connections_);
  }

  World& real_;
  Connections connections_;
};

}  // namespace megatron::testing
