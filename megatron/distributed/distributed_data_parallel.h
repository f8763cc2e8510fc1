// Gradients summed over the replicas of the model, while backward goes on or at its end.
// Megatron Core: core/distributed/distributed_data_parallel.py.
#pragma once

#include <memory>
#include <vector>

#include "megatron/comm/process_group_collection.h"
#include "megatron/distributed/bucket_group.h"
#include "megatron/distributed/distributed_data_parallel_config.h"

namespace megatron {

/// Owns the gradients of all parameters of a rank, and with the distributed optimizer their weights. One step:
///   ddp.begin_step();
///   ...                        // forward and backward of all micro-batches
///   ddp.finish_grad_sync();    // main_grad holds the sums over replicas; with the distributed optimizer only in the
///                              // ranges that owned_ranges() lists
///   optimizer.step(...);       // gathers the weights
/// Buckets start in one fixed order on all ranks, whatever order they fill in: that of the registration of their first
/// parameter, last one first. On one rank nothing is communicated. Refers to the parameters; not thread-safe.
class DistributedDataParallel {
 public:
  /// Gives every trainable parameter its main_grad. Weights keep their values, but may move.
  /// @param chunks  parameters of each model chunk of this rank, in registration order.
  /// @throw ConfigError if the config contradicts itself or does not fit the groups.
  DistributedDataParallel(const Context& ctx, const std::vector<std::vector<Parameter*>>& chunks,
                          const ProcessGroupCollection& groups, const DistributedDataParallelConfig& config);
  ~DistributedDataParallel();
  DistributedDataParallel(const DistributedDataParallel&) = delete;
  DistributedDataParallel& operator=(const DistributedDataParallel&) = delete;

  /// Before the first forward of a step: first writes of gradients overwrite.
  void begin_step();
  /// After the last backward: starts what has not started, and waits for all sums.
  /// @throw InternalError without a begin_step before it, or where a gradient is missing: see Parameter::finish.
  void finish_grad_sync();
  /// After weights of the own ranges have changed: gathers the others, or leaves that to begin_step() and to who reads
  /// them before it (gather_params_in_step). Nothing without the distributed optimizer.
  void start_param_sync();
  /// Waits for all weights; a weight that is read before this waits for its own bucket.
  void finish_param_sync();
  /// Before a step that is launched as a CUDA graph, or recorded as one: nothing is under way any more, and weights
  /// that are still to be gathered are left to begin_step(), which is part of the graph.
  void settle_param_sync();

  /// Returns what the optimizer of this rank steps, in registration order: with the distributed optimizer the parts of
  /// parameters that lie in its shards, else all parameters in whole.
  std::vector<FlatRange> owned_ranges() const;
  /// All trainable parameters of this rank, in registration order.
  const std::vector<Parameter*>& parameters() const { return parameters_; }
  /// Those of the chunks one after the other; in each chunk dense ones, then those of experts.
  const std::vector<std::unique_ptr<ParamAndGradBuffer>>& buffers() const { return buffers_; }
  const DistributedDataParallelConfig& config() const { return config_; }
  const ProcessGroupCollection& groups() const { return groups_; }

 private:
  struct OrderedGroup;
  void add_chunk(const std::vector<std::vector<Parameter*>>& chunks, size_t chunk, std::vector<OrderedGroup>& ordered);
  BucketGroup make_group(std::vector<BucketGroup::Bucket> buckets, size_t number) const;
  void connect(Parameter& parameter, size_t group);
  void mark_ready(size_t group);
  void gather_params();
  void start_ready_groups();

  Context ctx_;
  ProcessGroupCollection groups_;
  DistributedDataParallelConfig config_;
  std::vector<Parameter*> parameters_;
  std::vector<std::unique_ptr<ParamAndGradBuffer>> buffers_;
  std::vector<BucketGroup> bucket_groups_;  // as their reductions start; weights are gathered in the opposite order
  size_t num_started_ = 0;                  // of bucket_groups_, in this step
  bool is_in_step_ = false;                 // from begin_step to finish_grad_sync
  bool is_gather_due_ = false;              // weights have changed and nobody gathers them yet
};

}  // namespace megatron
