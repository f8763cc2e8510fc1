#include "megatron/training/config/layouts.h"

#include <algorithm>

#include "megatron/pipeline_parallel/layout_string.h"
#include "megatron/training/config/schedules.h"

namespace megatron {

ParallelLayout parallel_layout_of(const PretrainConfig& config) {
  const ParallelConfig& parallel = config.parallel;
  const auto size = [](int64_t value) { return static_cast<int>(value); };
  ParallelSizes sizes{.world_size = size(parallel.world_size),
                      .tensor_model_parallel_size = size(parallel.tensor_model_parallel_size),
                      .pipeline_model_parallel_size = size(parallel.pipeline_model_parallel_size),
                      .context_parallel_size = size(parallel.context_parallel_size)};
  if (config.experts.num_experts) {
    sizes.expert_model_parallel_size = size(parallel.expert_model_parallel_size);
    sizes.expert_tensor_parallel_size = size(parallel.expert_tensor_parallel_size.value());
  } else if (parallel.use_tp_pp_dp_mapping) {
    // Stages must be those of the dense grid, in which they come behind the ranks that share a sequence.
    sizes.expert_tensor_parallel_size = sizes.tensor_model_parallel_size * sizes.context_parallel_size;
  }
  sizes.num_distributed_optimizer_instances = size(parallel.num_distributed_optimizer_instances);
  // Only these have other copies than the first and last stage, which share the output layer's weights.
  if (config.parallel.pipeline_model_parallel_layout || config.transformer.mtp.num_layers > 0)
    sizes.embedding_ranks =
        pipeline_layout_of(config).word_embeddings(config.transformer.share_embeddings_and_output_weights).holders;
  if (parallel.hierarchical_context_parallel_sizes)
    for (const int64_t level : *parallel.hierarchical_context_parallel_sizes)
      sizes.hierarchical_context_parallel_sizes.push_back(size(level));
  sizes.hybrid_context_parallel = parallel.hybrid_context_parallel;
  if (parallel.use_tp_pp_dp_mapping) sizes.order = "tp-cp-ep-pp-dp";
  return ParallelLayout(std::move(sizes));
}

ScheduleOptions schedule_options_of(const PretrainConfig& config) {
  const ParallelConfig& parallel = config.parallel;
  const bool is_interleaved = parallel.virtual_pipeline_model_parallel_size.has_value();
  ScheduleOptions options{.kind = is_interleaved ? ScheduleKind::kInterleaved : ScheduleKind::kOneFOneB,
                          .num_ranks = static_cast<int>(parallel.pipeline_model_parallel_size),
                          .num_chunks = static_cast<int>(parallel.virtual_pipeline_model_parallel_size.value_or(1))};
  if (parallel.pipeline_schedule && options.num_ranks > 1) options.kind = *parallel.pipeline_schedule;
  if (tensor_comm_overlap_of(config).delays_weight_gradient) options.weight_gradient = WeightGradient::kSplit;
  if (parallel.microbatch_group_size_per_vp_stage && options.kind == ScheduleKind::kInterleaved)
    options.micro_batch_group_size = static_cast<int>(*parallel.microbatch_group_size_per_vp_stage);
  return options;
}

namespace {

/// Returns nothing if other mistakes leave the batches undefined.
std::optional<MicrobatchCalculator> batches_of(const PretrainConfig& config) {
  const ParallelConfig& parallel = config.parallel;
  const int64_t of_model =
      parallel.tensor_model_parallel_size * parallel.pipeline_model_parallel_size * parallel.context_parallel_size;
  if (!config.training.global_batch_size || !config.training.micro_batch_size || !config.model.seq_length ||
      parallel.world_size % of_model != 0)
    return std::nullopt;
  try {
    return microbatch_calculator_of(config);
  } catch (const ConfigError&) {
    return std::nullopt;
  }
}

}  // namespace

void check_pipeline_schedule(const PretrainConfig& config, Mistakes& mistakes) {
  const TrainingConfig& training = config.training;
  if (config.parallel.pipeline_model_parallel_size == 1) return;
  ScheduleOptions schedule = schedule_options_of(config);
  const std::optional<MicrobatchCalculator> batches = batches_of(config);
  if (!batches) {  // a whole group of micro-batches leaves out what depends on them
    schedule.num_micro_batches = std::max(schedule.micro_batch_group_size.value_or(0), schedule.num_ranks);
    return check_schedule(schedule, mistakes);
  }
  MicroBatchFlag flag{"--global-batch-size", training.micro_batch_size.value() * config.parallel.data_parallel_size};
  if (batch_size_flag(training) != flag.name) flag.name = "batches of";
  for (const BatchSizeStep& step : batch_size_steps_of(config)) {
    schedule.num_micro_batches = static_cast<int>(batches->at(step.first_sample).num_microbatches);
    check_schedule(schedule, mistakes, flag);
  }
}

LayerSplit layer_split_of(const PretrainConfig& config) {
  const ParallelConfig& parallel = config.parallel;
  return {.num_layers = config.transformer.num_layers,
          .placement = placement_of(schedule_options_of(config)),
          .first_rank_layers = parallel.decoder_first_pipeline_num_layers,
          .last_rank_layers = parallel.decoder_last_pipeline_num_layers,
          .account_for_embedding = parallel.account_for_embedding_in_pipeline_split,
          .account_for_loss = parallel.account_for_loss_in_pipeline_split};
}

PipelineLayout pipeline_layout_of(const PretrainConfig& config) {
  const ParallelConfig& parallel = config.parallel;
  if (parallel.pipeline_model_parallel_layout)
    return parse_layout(*parallel.pipeline_model_parallel_layout,
                        {.num_ranks = static_cast<int>(parallel.pipeline_model_parallel_size),
                         .num_layers = config.transformer.num_layers,
                         .num_mtp_layers = config.transformer.mtp.num_layers,
                         .order = placement_of(schedule_options_of(config)).order()});
  PipelineLayout layout = split_layers(layer_split_of(config));
  layout.set_mtp_layers(layout.placement().num_stages() - 1, config.transformer.mtp.num_layers);
  return layout;
}

TensorCommOverlap tensor_comm_overlap_of(const PretrainConfig& config) {
  const ParallelConfig& parallel = config.parallel;
  TensorCommOverlap overlap;
  if (!parallel.tp_comm_overlap) return overlap;
  if (parallel.tp_comm_overlap_ag) overlap.num_gather_splits = parallel.tp_comm_overlap_ag_splits;
  if (parallel.tp_comm_overlap_rs) overlap.num_scatter_splits = parallel.tp_comm_overlap_rs_splits;
  if (parallel.tp_comm_overlap_rs_dgrad) overlap.num_dgrad_splits = parallel.tp_comm_overlap_rs_splits;
  overlap.delays_weight_gradient = parallel.tp_comm_overlap_delay_wgrad;
  return overlap;
}

DistributedDataParallelConfig data_parallel_config_of(const PretrainConfig& config) {
  const ParallelConfig& parallel = config.parallel;
  const bool is_reduced_in_bf16 =
      config.precision.grad_reduce_in_bf16 || config.optimizer.main_grads_dtype == StateDType::kBFloat16;
  return {.grad_reduce_in_fp32 = !(config.precision.bf16 && is_reduced_in_bf16),
          .overlap_grad_reduce = parallel.overlap_grad_reduce,
          .use_distributed_optimizer = config.optimizer.use_distributed_optimizer,
          .gather_params_in_step = config.optimizer.overlap_param_gather && config.cuda_graph.records(),
          .calculate_per_token_loss = config.training.calculate_per_token_loss,
          .average_in_collective = parallel.ddp_average_in_collective && !config.training.calculate_per_token_loss,
          .bucket_size = parallel.ddp_bucket_size,
          .num_buckets = parallel.ddp_num_buckets,
          .pad_buckets_for_high_nccl_busbw = parallel.ddp_pad_buckets_for_high_nccl_busbw,
          .num_distributed_optimizer_instances = parallel.num_distributed_optimizer_instances};
}

}  // namespace megatron
