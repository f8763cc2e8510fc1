// The transfers and reductions of one rank in one operation between processes.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "megatron/comm/operation_key.h"

namespace megatron {

/// Bytes to or from a member of the group.
struct MpiSend {
  int peer;
  const std::byte* data;
  size_t bytes;
};
struct MpiReceive {
  int peer;
  std::byte* data;
  size_t bytes;
};

/// Transfers that run at the same time. Then, if there are inputs, `output` is their reduction in this order.
struct MpiRound {
  std::vector<MpiSend> sends;
  std::vector<MpiReceive> receives;
  std::vector<const void*> inputs;
  std::byte* output = nullptr;
  int64_t num_elements = 0;
};

/// Rounds run one after the other. A peer receives in the same round in which a rank sends to it, so
/// the ranks of a group can never deadlock. Empty transfers are left out on both sides.
struct MpiPlan {
  std::vector<MpiRound> rounds;
  std::unique_ptr<std::byte[]> scratch;  // receive buffers of reductions
  /// Copies of this rank to itself, before the first round.
  const std::byte* copy_from = nullptr;
  std::byte* copy_to = nullptr;
  size_t copy_bytes = 0;
};

/// A rank's index in its group.
struct MpiPlace {
  int rank, size;
};

/// Reductions: sections of the buffers are sent to their owners, which sum them in rank order (reduce_in_rank_order), a
/// piece at a time; a small all_reduce sends the whole buffer to every rank. The bits are the same either way.
MpiPlan plan_all_reduce(MpiPlace place, const OperationKey& key, std::byte* buffer);
MpiPlan plan_reduce_scatter(MpiPlace place, const OperationKey& key, const std::byte* input, std::byte* output);
MpiPlan plan_all_gather(MpiPlace place, const OperationKey& key, const std::byte* input, std::byte* output);
/// Counts are elements per rank.
MpiPlan plan_all_to_all(MpiPlace place, const OperationKey& key, const std::byte* input, std::byte* output,
                        std::span<const int64_t> send_counts, std::span<const int64_t> receive_counts);
MpiPlan plan_broadcast(MpiPlace place, const OperationKey& key, std::byte* buffer);
MpiPlan plan_send(int peer, const OperationKey& key, const std::byte* input);
MpiPlan plan_receive(int peer, const OperationKey& key, std::byte* output);

/// Limit of a transfer that is sent with the handshake, if it is the only one with its peer in the first round.
constexpr size_t kMaxMpiGreetingBytes = 2048;  // with its header below 4 KiB, what Open MPI sends without a handshake

}  // namespace megatron
