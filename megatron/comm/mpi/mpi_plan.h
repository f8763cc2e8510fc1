// What one rank sends, receives and reduces in one operation between processes.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "megatron/comm/operation_key.h"

namespace megatron {

/// Bytes that go to, or come from, a member of the group.
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

/// Rounds run one after the other. What a rank sends to a peer in a round, the peer receives from it in that round, so
/// the ranks of a group can never wait in a circle. Empty transfers are left out on both sides.
struct MpiPlan {
  std::vector<MpiRound> rounds;
  std::unique_ptr<std::byte[]> scratch;  // what comes in to be reduced
  /// Of this rank to itself, before the first round.
  const std::byte* copy_from = nullptr;
  std::byte* copy_to = nullptr;
  size_t copy_bytes = 0;
};

/// A rank's place in its group.
struct MpiPlace {
  int rank, size;
};

/// Reductions: sections of the buffers go to their owners, which sum them in rank order (reduce_in_rank_order), a piece
/// at a time; a small all_reduce goes to everyone whole. The bits are the same either way.
MpiPlan plan_all_reduce(MpiPlace place, const OperationKey& key, std::byte* buffer);
MpiPlan plan_reduce_scatter(MpiPlace place, const OperationKey& key, const std::byte* input, std::byte* output);
MpiPlan plan_all_gather(MpiPlace place, const OperationKey& key, const std::byte* input, std::byte* output);
/// Counts are elements per rank.
MpiPlan plan_all_to_all(MpiPlace place, const OperationKey& key, const std::byte* input, std::byte* output,
                        std::span<const int64_t> send_counts, std::span<const int64_t> receive_counts);
MpiPlan plan_broadcast(MpiPlace place, const OperationKey& key, std::byte* buffer);
MpiPlan plan_send(int peer, const OperationKey& key, const std::byte* input);
MpiPlan plan_receive(int peer, const OperationKey& key, std::byte* output);

/// A transfer of at most this many bytes that is alone with its peer in the first round travels with the greeting.
constexpr size_t kMaxMpiGreetingBytes = 2048;  // with its header below 4 KiB, what Open MPI sends without a handshake

}  // namespace megatron
