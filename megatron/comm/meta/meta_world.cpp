#include "megatron/comm/meta/meta_world.h"

#include <algorithm>

namespace megatron {
namespace {

int64_t bytes_of(const ConstView& view) { return view.num_elements() * size_of(view.dtype); }

class MetaBackend final : public ProcessGroupBackend {
 public:
  MetaBackend(Connections& connections, std::string_view group, int own, const GroupTraits& traits)
      : connections_(connections), group_(group), own_(own), traits_(traits) {}

  Pending do_all_reduce(const OperationInfo& info, View buffer, ReduceOp) override {
    return collective(info, bytes_of(buffer));
  }
  Pending do_reduce_scatter(const OperationInfo& info, ConstView input, View output, ReduceOp) override {
    return collective(info, bytes_of(input), bytes_of(output));
  }
  Pending do_all_gather(const OperationInfo& info, ConstView input, View output) override {
    return collective(info, bytes_of(output), bytes_of(input));
  }
  Pending do_all_to_all(const OperationInfo& info, ConstView input, View output, std::span<const int64_t>,
                        std::span<const int64_t>) override {
    return collective(info, std::max(bytes_of(input), bytes_of(output)));
  }
  Pending do_broadcast(const OperationInfo& info, View buffer, int) override {
    return collective(info, bytes_of(buffer));
  }
  Pending do_barrier(const OperationInfo& info) override { return collective(info, 0); }
  Pending do_point_to_point(std::span<const OperationInfo>, std::span<const PointToPoint> messages) override {
    for (const PointToPoint& message : messages) {
      const bool sends = message.op == CommOp::kSend;
      const int64_t bytes = bytes_of(sends ? message.input : ConstView(message.output));
      note(connections_,
           {.group = group_,
            .sender = sends ? own_ : message.peer,
            .receiver = sends ? message.peer : own_,
            .tag = message.tag},
           traits_, message.op, bytes, bytes);
    }
    return nullptr;
  }
  void do_copy(ConstView, View) override {}
  void abort(std::string_view) override {}

 private:
  /// @param bytes  of the larger operand. @param section  bytes of a section of rows, 0: there are none
  Pending collective(const OperationInfo& info, int64_t bytes, int64_t section = 0) {
    note(connections_, {.group = group_}, traits_, info.op, bytes, section);
    return nullptr;
  }

  Connections& connections_;
  std::string group_;
  int own_;
  GroupTraits traits_;
};

}  // namespace

MetaWorld::MetaWorld(int rank, int size) : World(rank, size, std::chrono::milliseconds::max()) {}

std::unique_ptr<ProcessGroupBackend> MetaWorld::do_split(std::string_view name, const RankLists&, const Membership& own,
                                                         const GroupTraits& traits) {
  return own.group < 0 ? nullptr : std::make_unique<MetaBackend>(connections_, name, own.rank, traits);
}

}  // namespace megatron
