// The settings of data parallelism. Names are Megatron Core's.
#pragma once

#include <cstdint>
#include <optional>

namespace megatron {

struct DistributedDataParallelConfig {
  bool grad_reduce_in_fp32 = true;         ///< else in the parameters' dtype; fp64 parameters always reduce in fp64
  bool overlap_grad_reduce = false;        ///< a bucket starts when its last gradient is complete; else all at the end
  bool use_distributed_optimizer = false;  ///< reduce-scatter: each rank gets the sums of its own shard only
  /// Weights are gathered at the begin of the next step instead of right after the optimizer: a CUDA graph of the step
  /// then hides that behind its kernels.
  bool gather_params_in_step = false;
  /// false: the mean over replicas of what backward made. true: the sum, because the number of tokens of the global
  /// batch is in the gradient that enters the loss.
  bool calculate_per_token_loss = true;
  bool average_in_collective = false;  ///< the mean is formed by the collective, not before it
  std::optional<int64_t> bucket_size;  ///< elements; none: the larger of 40 million and 1 million a replica
  std::optional<int64_t> num_buckets;  ///< gives the bucket size: parameters of this rank / num_buckets
  bool pad_buckets_for_high_nccl_busbw = false;
  /// Runs of the data-parallel ranks that hold whole copies of the optimizer's state; sums go on between them.
  int64_t num_distributed_optimizer_instances = 1;
};

}  // namespace megatron
