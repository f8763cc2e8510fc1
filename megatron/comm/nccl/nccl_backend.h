// The operations of one rank in one group, on a GPU.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "megatron/comm/nccl/nccl_hub.h"
#include "megatron/comm/process_group_backend.h"

namespace megatron {

/// Facts of a group that its lanes need.
struct NcclGroup {
  std::string name;        // of the group, for messages
  std::string id;          // no other group of the job has it
  std::vector<int> ranks;  // global
  int own = 0;             // place of this rank
};

class NcclBackend final : public ProcessGroupBackend {
 public:
  /// Ranks are connected when they first use the group: most of the groups of a layout are never used.
  NcclBackend(NcclHub& hub, NcclGroup group);
  ~NcclBackend() override;

  Pending do_all_reduce(const OperationInfo& info, View buffer, ReduceOp reduce) override;
  Pending do_reduce_scatter(const OperationInfo& info, ConstView input, View output, ReduceOp reduce) override;
  Pending do_all_gather(const OperationInfo& info, ConstView input, View output) override;
  Pending do_all_to_all(const OperationInfo& info, ConstView input, View output, std::span<const int64_t> send_counts,
                        std::span<const int64_t> receive_counts) override;
  Pending do_broadcast(const OperationInfo& info, View buffer, int root) override;
  Pending do_barrier(const OperationInfo& info) override;
  Pending do_point_to_point(std::span<const OperationInfo> infos, std::span<const PointToPoint> messages) override;
  void do_copy(ConstView input, View output) override;
  void abort(std::string_view reason) override;

 private:
  Pending enter(const OperationInfo& info, const NcclOperands& operands, NcclLaunch launch);
  NcclLane& collectives();
  NcclLane& channel(const PointToPoint& message);

  NcclHub& hub_;
  NcclGroup group_;
  PinnedPool::Block barrier_;              // a number for each rank; barriers add up the first
  std::unique_ptr<NcclLane> collectives_;  // null: not used yet
  std::map<std::tuple<int, int, CommOp>, std::unique_ptr<NcclLane>> channels_;  // by peer, tag and direction
};

}  // namespace megatron
