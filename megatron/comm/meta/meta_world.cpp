#include "megatron/comm/meta/meta_world.h"

namespace megatron {
namespace {

int64_t bytes_of(const ConstView& view) { return view.num_elements() * size_of(view.dtype); }

class MetaBackend final : public ProcessGroupBackend {
 public:
  MetaBackend(Connections& connections, std::string_view group, int own)
      : connections_(connections), group_(group), own_(own) {}

  Pending do_all_reduce(const OperationInfo&, View, ReduceOp) override { return collective(); }
  Pending do_reduce_scatter(const OperationInfo&, ConstView, View output, ReduceOp) override {
    return collective(bytes_of(output));
  }
  Pending do_all_gather(const OperationInfo&, ConstView input, View) override { return collective(bytes_of(input)); }
  Pending do_all_to_all(const OperationInfo&, ConstView, View, std::span<const int64_t>,
                        std::span<const int64_t>) override {
    return collective();
  }
  Pending do_broadcast(const OperationInfo&, View, int) override { return collective(); }
  Pending do_barrier(const OperationInfo&) override { return collective(); }
  Pending do_point_to_point(std::span<const OperationInfo>, std::span<const PointToPoint> messages) override {
    for (const PointToPoint& message : messages) {
      const bool sends = message.op == CommOp::kSend;
      note(connections_,
           {.group = group_,
            .sender = sends ? own_ : message.peer,
            .receiver = sends ? message.peer : own_,
            .tag = message.tag},
           bytes_of(sends ? message.input : ConstView(message.output)));
    }
    return nullptr;
  }
  void do_copy(ConstView, View) override {}
  void abort(std::string_view) override {}

 private:
  /// @param bytes of a section of rows
  Pending collective(int64_t bytes = 0) {
    note(connections_, {.group = group_}, bytes);
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
