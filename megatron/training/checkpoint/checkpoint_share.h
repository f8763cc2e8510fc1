// The part of a checkpoint that one rank stores.
#pragma once

#include <array>
#include <string>

#include "megatron/comm/process_group_collection.h"
#include "megatron/dist_checkpointing/checkpoint_writer.h"
#include "megatron/distributed/replica_groups.h"
#include "megatron/training/checkpoint/checkpoint_layout.h"
#include "megatron/training/checkpoint/optimizer_tensors.h"

namespace megatron {

/// Deals what replicas hold alike: the next item of a parameter goes to that of its replicas (replicas_of) that has the
/// fewest bytes so far. All of them ask for the same items in the same order.
class ReplicaDealer {
 public:
  /// @param deals  false: the first replica takes all (--no-ckpt-fully-parallel-save).
  ReplicaDealer(const ProcessGroupCollection& groups, bool deals);
  /// The replica that takes the next item.
  int owner_of(const Parameter& parameter, int64_t bytes);
  /// Says whether this rank takes the next item.
  bool takes(const Parameter& parameter, int64_t bytes);
  const ProcessGroup& replicas(const Parameter& parameter) const { return of(parameter).replicas; }

 private:
  struct OfGrid {
    ProcessGroup replicas;
    std::vector<int64_t> bytes;  // of each replica
  };
  const OfGrid& of(const Parameter& parameter) const;

  std::array<OfGrid, 2> grids_;  // by ShardGrid
};

/// Adds this rank's part of each tensor to a checkpoint, so that all ranks together store each element once.
class CheckpointShare {
 public:
  /// @param deals  whether replicas share what all of them hold alike, rather than leave it to the first.
  CheckpointShare(CheckpointWriter& writer, const Context& ctx, const ProcessGroupCollection& groups, bool deals);

  /// Adds a tensor that all replicas of the parameter have alike.
  void add_replicated(const Parameter& parameter, const CheckpointPlacement& placement, const std::string& key,
                      const OptimizerTensor& value);
  /// Adds a tensor that this rank alone has in its instance of the optimizer.
  void add_sharded(const CheckpointPlacement& placement, const std::string& key, const OptimizerTensor& value);
  CheckpointWriter& writer() { return writer_; }

 private:
  void add(const CheckpointPlacement& placement, const std::string& key, const CheckpointChunk& chunk,
           const OptimizerTensor& value);

  Context ctx_;
  CheckpointWriter& writer_;
  ReplicaDealer dealer_;
  bool is_first_instance_;
};

}  // namespace megatron
