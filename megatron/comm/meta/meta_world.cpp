#include "megatron/comm/meta/meta_world.h"

namespace megatron {
namespace {

class MetaBackend final : public ProcessGroupBackend {
 public:
  Pending do_all_reduce(const OperationInfo&, View, ReduceOp) override { return nullptr; }
  Pending do_reduce_scatter(const OperationInfo&, ConstView, View, ReduceOp) override { return nullptr; }
  Pending do_all_gather(const OperationInfo&, ConstView, View) override { return nullptr; }
  Pending do_all_to_all(const OperationInfo&, ConstView, View, std::span<const int64_t>,
                        std::span<const int64_t>) override {
    return nullptr;
  }
  Pending do_broadcast(const OperationInfo&, View, int) override { return nullptr; }
  Pending do_barrier(const OperationInfo&) override { return nullptr; }
  Pending do_point_to_point(std::span<const OperationInfo>, std::span<const PointToPoint>) override { return nullptr; }
  void do_copy(ConstView, View) override {}
  void abort(std::string_view) override {}
};

}  // namespace

MetaWorld::MetaWorld(int rank, int size) : World(rank, size, std::chrono::milliseconds::max()) {}

std::unique_ptr<ProcessGroupBackend> MetaWorld::do_split(std::string_view, const RankLists&, const Membership& own) {
  return own.group < 0 ? nullptr : std::make_unique<MetaBackend>();
}

}  // namespace megatron
