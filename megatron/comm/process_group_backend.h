// The transport of a process group: the small virtual side of ProcessGroup.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/comm/group_traits.h"
#include "megatron/comm/operation.h"
#include "megatron/comm/work.h"

namespace megatron {

/// Carries the operations of one rank in one group.
///
/// The front has checked the arguments: views are contiguous, dtypes agree, the reduction suits the dtype, sizes
/// divide, input and output overlap only where an in-place form allows it. Elements may be none and then pointers null.
///
/// Contract of every do_ function:
/// - It returns without waiting for other ranks. Operations but messages take effect in the order of the calls, so that
///   one may read what the one before it wrote. Messages keep their order per (sender, receiver, tag) and are
///   independent of everything else.
/// - A device backend is made for the compute stream of its device: an operation starts after what that stream holds
///   at the call, and Work::wait() makes that stream wait for the operation.
/// - Reductions of host memory sum in rank order in fp32 (fp64 for fp64, integers exactly) and round once
///   (reduce_in_rank_order), whatever the chunking and timing.
/// - A rank that waits longer than info.timeout, loses a rank, or is aborted throws CommError naming the ranks that did
///   not come, from PendingOperation::wait() or from the next call; so do all ranks of the group within 5 s.
/// - wait, start and end are reported to info.recorder.
/// All calls come from one thread, except abort().
class ProcessGroupBackend {
 public:
  virtual ~ProcessGroupBackend() = default;

  using Pending = std::unique_ptr<PendingOperation>;
  virtual Pending do_all_reduce(const OperationInfo& info, View buffer, ReduceOp reduce) = 0;
  virtual Pending do_reduce_scatter(const OperationInfo& info, ConstView input, View output, ReduceOp reduce) = 0;
  virtual Pending do_all_gather(const OperationInfo& info, ConstView input, View output) = 0;
  /// Counts are elements per rank, packed in rank order in both views.
  virtual Pending do_all_to_all(const OperationInfo& info, ConstView input, View output,
                                std::span<const int64_t> send_counts, std::span<const int64_t> receive_counts) = 0;
  virtual Pending do_broadcast(const OperationInfo& info, View buffer, int root) = 0;
  virtual Pending do_barrier(const OperationInfo& info) = 0;
  /// Messages that progress together; infos[i] belongs to messages[i].
  virtual Pending do_point_to_point(std::span<const OperationInfo> infos, std::span<const PointToPoint> messages) = 0;

  /// In a group of one, where nothing else is called: output = input, in the order of the compute stream.
  virtual void do_copy(ConstView input, View output) = 0;

  /// Makes every rank of the group that waits, or calls later, throw CommError with this reason. Any thread, any time.
  virtual void abort(std::string_view reason) = 0;
};

/// State behind a ProcessGroup; owned by the World that made it.
struct ProcessGroupState {
  std::string name;
  GroupTraits traits;
  std::vector<int> ranks;  // global
  int rank = 0;            // own place in `ranks`
  std::chrono::milliseconds timeout{0};
  FlightRecorder* recorder = nullptr;
  std::unique_ptr<ProcessGroupBackend> backend;  // may be null in a group of one rank whose memory is the host's
  int64_t num_collectives = 0, num_messages = 0;
};

}  // namespace megatron
