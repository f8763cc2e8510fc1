#include "megatron/distributed/data_parallel_plan.h"

#include <algorithm>

#include "megatron/base/error.h"

namespace megatron {
namespace {

void check(const DistributedDataParallelConfig& config, const DataParallelSizes& sizes) {
  require<ConfigError>(!config.average_in_collective || !config.calculate_per_token_loss,
                       "[DistributedDataParallel] --ddp-average-in-collective averages over replicas, "
                       "--calculate-per-token-loss sums over them. Choose one.");
  const int64_t instances = config.num_distributed_optimizer_instances;
  require<ConfigError>(instances == 1 || config.use_distributed_optimizer,
                       "[DistributedDataParallel] {} instances of the distributed optimizer need "
                       "--use-distributed-optimizer.",
                       instances);
  require<ConfigError>(instances > 0 && sizes.dp_cp % instances == 0 && sizes.expt_dp % instances == 0,
                       "[DistributedDataParallel] {} instances of the distributed optimizer do not divide {} replicas "
                       "of dense and {} of expert parameters.",
                       instances, sizes.dp_cp, sizes.expt_dp);
  require<ConfigError>(!config.bucket_size || !config.num_buckets,
                       "[DistributedDataParallel] --ddp-bucket-size {} and --ddp-num-buckets {} exclude each other.",
                       config.bucket_size.value_or(0), config.num_buckets.value_or(0));
  require<ConfigError>(config.bucket_size.value_or(1) > 0 && config.num_buckets.value_or(1) > 0,
                       "[DistributedDataParallel] sizes and numbers of buckets must be positive.");
}

std::optional<int64_t> bucket_size_of(std::span<const PlannedParameter> parameters, const DataParallelSizes& sizes,
                                      const DistributedDataParallelConfig& config) {
  if (!config.overlap_grad_reduce || sizes.pipeline_rank > 0 || sizes.chunk > 0) return std::nullopt;
  if (config.bucket_size) return config.bucket_size;
  if (!config.num_buckets) return std::max<int64_t>(40'000'000, 1'000'000 * sizes.dp);
  int64_t num_elements = sizes.elements_of_other_chunks;
  for (const PlannedParameter& parameter : parameters) num_elements += parameter.num_elements;
  return std::max<int64_t>(num_elements / *config.num_buckets, 1);
}

/// The mean over dp_cp replicas, also for experts: their gradients hold the tokens of all ranks that share them.
double scaling_factor(bool is_expert, const DataParallelSizes& sizes, const DistributedDataParallelConfig& config) {
  const auto replicas = static_cast<double>(sizes.dp_cp);
  if (config.calculate_per_token_loss) return 1;
  if (!config.average_in_collective) return 1 / replicas;
  return is_expert ? static_cast<double>(sizes.expt_dp) / replicas : 1;
}

DType grad_dtype_of(DType param_dtype, const DistributedDataParallelConfig& config) {
  return config.grad_reduce_in_fp32 && param_dtype != DType::kFloat64 ? DType::kFloat32 : param_dtype;
}

}  // namespace

DataParallelPlan DataParallelPlan::make(std::span<const PlannedParameter> parameters, const DataParallelSizes& sizes,
                                        const DistributedDataParallelConfig& config) {
  check(config, sizes);
  DataParallelPlan plan{.bucket_size = bucket_size_of(parameters, sizes, config), .buffers = {}, .groups = {}};
  for (const bool is_expert : {false, true}) {
    const size_t first_buffer = plan.buffers.size();
    for (size_t i = 0; i < parameters.size(); ++i) {
      if (!parameters[i].is_trainable || parameters[i].is_expert != is_expert) continue;
      const DType dtype = parameters[i].dtype;
      auto buffer = std::find_if(plan.buffers.begin() + static_cast<std::ptrdiff_t>(first_buffer), plan.buffers.end(),
                                 [&](const BufferPlan& b) { return b.param_dtype == dtype; });
      if (buffer == plan.buffers.end())
        buffer = plan.buffers.insert(buffer,
                                     BufferPlan{.is_expert = is_expert,
                                                .param_dtype = dtype,
                                                .grad_dtype = grad_dtype_of(dtype, config),
                                                .gradient_scaling_factor = scaling_factor(is_expert, sizes, config)});
      buffer->parameters.push_back(i);
    }
    const int64_t replicas = is_expert ? sizes.expt_dp : sizes.dp_cp;
    const BufferLayoutOptions options{.use_distributed_optimizer = config.use_distributed_optimizer,
                                      .data_parallel_size = replicas / config.num_distributed_optimizer_instances,
                                      .bucket_size = plan.bucket_size,
                                      .pad_buckets_for_high_nccl_busbw = config.pad_buckets_for_high_nccl_busbw};
    const bool is_one_group = sizes.chunk > 0;
    for (size_t b = first_buffer; b < plan.buffers.size(); ++b) {
      std::vector<BufferLayout::Entry> entries;
      for (size_t i : plan.buffers[b].parameters)
        entries.push_back({parameters[i].num_elements, parameters[i].is_shared_embedding});
      plan.buffers[b].layout = BufferLayout::make(entries, options);
      for (size_t k = 0; k < plan.buffers[b].layout.buckets.size(); ++k) {
        if (!is_one_group || (b == first_buffer && k == 0)) plan.groups.emplace_back();
        plan.groups.back().push_back({b, k});
      }
    }
  }
  return plan;
}

}  // namespace megatron
