#include "megatron/comm/meta/meta_world.h"

namespace megatron {
namespace {

class MetaBackend final : public ProcessGroupBackend {
 public:
  MetaBackend(Connections& connections, std::string_view group, int own)
      : connections_(connections), group_(group), own_(own) {}

  Pending do_all_reduce(const OperationInfo&, View, ReduceOp) override { return collective(); }
  Pending do_reduce_scatter(const OperationInfo&, ConstView, View, ReduceOp) override { return collective(); }
  Pending do_all_gather(const OperationInfo&, ConstView, View) override { return collective(); }
  Pending do_all_to_all(const OperationInfo&, ConstView, View, std::span<const int64_t>,
                        std::span<const int64_t>) override {
    return collective();
  }
  Pending do_broadcast(const OperationInfo&, View, int) override { return collective(); }
  Pending do_barrier(const OperationInfo&) override { return collective(); }
  Pending do_point_to_point(std::span<const OperationInfo>, std::span<const PointToPoint> messages) override {
    for (const PointToPoint& message : messages) {
      const bool sends = message.op == CommOp::kSend;
      connections_.insert({.group = group_,
                           .sender = sends ? own_ : message.peer,
                           .receiver = sends ? message.peer : own_,
                           .tag = message.tag});
    }
    return nullptr;
  }
  void do_copy(ConstView, View) override {}
  void abort(std::string_view) override {}

 private:
  Pending collective() {
    connections_.insert({.group = group_});
    return nullptr;
  }

  Connections& connections_;
  std::string group_;
  int own_;
};

}  // namespace

MetaWorld::MetaWorld(int rank, int size) : World(rank, size, std::chrono::milliseconds::max()) {}

std::unique_ptr<ProcessGroupBackend> MetaWorld::do_split(std::string_view name, const RankLists&,
                                                         const Membership& own) {
  return own.group < 0 ? nullptr : std::make_unique<MetaBackend>(connections_, name, own.rank);
}

}  // namespace megatron
