// Reads tensors of a checkpoint into those of a rank.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "megatron/base/message_log.h"
#include "megatron/comm/process_group_collection.h"
#include "megatron/core/context.h"
#include "megatron/dist_checkpointing/checkpoint_reader.h"
#include "megatron/dist_checkpointing/stored_tensors.h"
#include "megatron/dist_checkpointing/strict_handling.h"
#include "megatron/training/checkpoint/checkpoint_layout.h"

namespace megatron {

/// A tensor that a load fills.
struct LoadRequest {
  const Parameter* parameter = nullptr;  ///< whose weight or optimizer state it is
  std::string key;
  CheckpointPlacement placement;
  std::function<Tensor()> tensor;               ///< the rank's shard, or a copy of it, made when it is read
  std::function<void(const Tensor&)> put_back;  ///< takes what was read where tensor() is a copy; else empty
};
using LoadRequests = std::vector<LoadRequest>;

/// Logs or raises what `handling` says about tensors that not both the checkpoint and the ranks have. All ranks call it
/// and all of them raise.
/// @param lists  of this rank. @param log  of one of the ranks.
void require_matching_keys(const CheckpointReader& reader, std::initializer_list<std::span<const LoadRequest>> lists,
                           StrictHandling handling, const ProcessGroup& world, const MessageLog& log);

/// Drops the requests of tensors that are not in the checkpoint.
void leave_out_unexpected(const CheckpointReader& reader, LoadRequests& requests);

/// Reads all of them, and converts where the run has another precision than the checkpoint.
void read(const StoredTensors& reader, std::span<const LoadRequest> requests, const Context& ctx);
/// The same for tensors that all replicas of their parameter hold alike (--ckpt-fully-parallel-load): each is read by
/// one of them, which broadcasts it. Until then a rank keeps what it has read in host memory.
void read_shared(const StoredTensors& reader, std::span<const LoadRequest> requests, const Context& ctx,
                 const ProcessGroupCollection& groups);

}  // namespace megatron
