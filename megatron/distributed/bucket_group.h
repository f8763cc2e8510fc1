// Buckets whose communication starts together. Megatron Core: core/distributed/param_and_grad_buffer.py.
#pragma once

#include <string>
#include <vector>

#include "megatron/comm/process_group.h"
#include "megatron/distributed/param_and_grad_buffer.h"

namespace megatron {

/// Reduces gradients and gathers weights over the data-parallel ranks, bucket by bucket, in place. Reductions act on
/// each element by itself and in rank order, so neither the cut into buckets nor the time of the start changes a bit.
class BucketGroup {
 public:
  struct Bucket {
    ParamAndGradBuffer* buffer = nullptr;
    size_t index = 0;
    ElementRange range() const { return buffer->layout().buckets[index].range; }
  };
  struct Options {
    ProcessGroup replicas;   // reduce these buckets together; of one optimizer instance
    ProcessGroup instances;  // equal places in all instances
    bool shards = false;     // with the distributed optimizer: a rank needs the sums of its own shard only
    bool average = false;    // in the collective
    std::string name;        // for records
  };
  BucketGroup(std::vector<Bucket> buckets, Options options);

  const std::vector<Bucket>& buckets() const { return buckets_; }
  /// Returns the ranges of a bucket's parameters that this rank's optimizer steps.
  std::vector<FlatRange> owned_ranges(const Bucket& bucket) const;

  /// No gradient is ready.
  void begin_step();
  /// One more is. @throw InternalError if all were.
  void mark_ready();
  bool is_ready() const { return num_unready_ == 0; }

  /// After all gradients are ready. Nobody writes them until finish.
  void start_grad_sync(const Context& ctx);
  /// Waits for the sums of the own instance and starts those between instances.
  void start_instance_sync();
  void finish_grad_sync();
  /// Gathers weights from the shards of their owners.
  void start_param_sync();
  void finish_param_sync();

 private:
  Tensor shard_of(const Tensor& buffer, const Bucket& bucket) const;
  ReduceOp reduction() const { return options_.average ? ReduceOp::kAverage : ReduceOp::kSum; }

  std::vector<Bucket> buckets_;
  Options options_;
  size_t num_parameters_ = 0, num_unready_ = 0;
  std::vector<Work> grad_works_, param_works_;
};

}  // namespace megatron
