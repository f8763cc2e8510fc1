// The operations of one rank in one group, on a GPU.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "megatron/comm/connection.h"
#include "megatron/comm/nccl/nccl_hub.h"
#include "megatron/comm/process_group_backend.h"

namespace megatron {

/// Properties of a group that its lanes need.
struct NcclGroup {
  std::string name;  // of the group, for messages
  GroupTraits traits;
  std::string id;          // unique among the groups of the job
  std::vector<int> ranks;  // global
  int own = 0;             // index of this rank
};

class NcclBackend final : public ProcessGroupBackend {
 public:
  /// Ranks connect at the first use of the group or on request, because most groups of a layout are never used.
  NcclBackend(NcclHub& hub, NcclGroup group);
  ~NcclBackend() override;
  /// Begins a connection; see GpuRanks. @param connection of this group and this rank.
  void connect(const Connection& connection, const ConnectionUse& use);

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
  NcclLane::Connection connect_collectives(const NcclLane::Facts& lane, NcclLibrary::Stream stream, int64_t bytes);
  NcclLane::Connection connect_messages(const NcclLane::Facts& lane, NcclLibrary::Stream stream, int64_t bytes);
  /// Memory of all members of a lane, which each allocates in the same way.
  PeerMemory::Made make_memory(const NcclLane::Facts& lane, int64_t bytes);
  /// Says whether rows and messages go by copy engine where they can.
  bool is_copied() const { return group_.traits.by_copy_engine && hub_.copies_between_gpus(); }
  /// @param bytes see ConnectionUse::largest
  NcclLane& collectives(int64_t bytes = CopiedGroups::kAnySize);
  /// @param peer rank of the group. @param op kSend or kReceive
  NcclLane& channel(int peer, int tag, CommOp op, int64_t bytes = CopiedGroups::kAnySize);
  void require_before_step(std::string_view what) const;
  void require_pairs() const;
  int32_t* numbers() { return reinterpret_cast<int32_t*>(barrier_.data()); }

  NcclHub& hub_;
  NcclGroup group_;
  PinnedPool::Block barrier_;              // a number for each rank; barriers add up the first
  std::unique_ptr<NcclLane> collectives_;  // null: not used yet
  std::map<std::tuple<int, int, CommOp>, std::unique_ptr<NcclLane>> channels_;  // by peer, tag and direction
};

}  // namespace megatron
