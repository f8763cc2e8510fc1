#include "megatron/training/config/layouts.h"

namespace megatron {

ParallelLayout parallel_layout_of(const PretrainConfig& config) {
  const ParallelConfig& parallel = config.parallel;
  const auto size = [](int64_t value) { return static_cast<int>(value); };
  ParallelSizes sizes{.world_size = size(parallel.world_size),
                      .tensor_model_parallel_size = size(parallel.tensor_model_parallel_size),
                      .pipeline_model_parallel_size = size(parallel.pipeline_model_parallel_size),
                      .context_parallel_size = size(parallel.context_parallel_size)};
  sizes.num_distributed_optimizer_instances = size(parallel.num_distributed_optimizer_instances);
  if (parallel.use_tp_pp_dp_mapping) sizes.order = "tp-cp-ep-pp-dp";
  return ParallelLayout(std::move(sizes));
}

DistributedDataParallelConfig data_parallel_config_of(const PretrainConfig& config) {
  const ParallelConfig& parallel = config.parallel;
  return {.grad_reduce_in_fp32 = !config.precision.grad_reduce_in_bf16,
          .overlap_grad_reduce = parallel.overlap_grad_reduce,
          .use_distributed_optimizer = config.optimizer.use_distributed_optimizer,
          .overlap_param_gather = config.optimizer.overlap_param_gather,
          .calculate_per_token_loss = config.training.calculate_per_token_loss,
          .average_in_collective = parallel.ddp_average_in_collective && !config.training.calculate_per_token_loss,
          .bucket_size = parallel.ddp_bucket_size,
          .num_buckets = parallel.ddp_num_buckets,
          .num_distributed_optimizer_instances = parallel.num_distributed_optimizer_instances};
}

}  // namespace megatron
