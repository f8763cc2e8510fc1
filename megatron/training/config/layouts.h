// The layout of ranks that a configuration describes: what each rank holds and does.
#pragma once

#include "megatron/comm/parallel_layout.h"
#include "megatron/distributed/distributed_data_parallel_config.h"
#include "megatron/pipeline_parallel/pipeline_layout.h"
#include "megatron/pipeline_parallel/pipeline_schedule.h"
#include "megatron/tensor_parallel/comm_overlap.h"
#include "megatron/training/config/pretrain_config.h"

namespace megatron {

/// @param config  resolved. @throw ConfigError as ParallelLayout.
ParallelLayout parallel_layout_of(const PretrainConfig& config);
/// The pipeline's schedule, for any number of micro-batches.
ScheduleOptions schedule_options_of(const PretrainConfig& config);
/// Checks that the schedule can run the micro-batches of every step. This is not among Megatron's rules of the command
/// line: Megatron finds it when the first step begins.
void check_pipeline_schedule(const PretrainConfig& config, Mistakes& mistakes);
/// The split of layers that the flags with counts describe.
LayerSplit layer_split_of(const PretrainConfig& config);
/// The layers of each pipeline stage. @throw ConfigError as split_layers and parse_layout.
PipelineLayout pipeline_layout_of(const PretrainConfig& config);
/// The way in which tensor-parallel linear layers hide their communication.
TensorCommOverlap tensor_comm_overlap_of(const PretrainConfig& config);
/// The way in which gradients are summed over replicas.
DistributedDataParallelConfig data_parallel_config_of(const PretrainConfig& config);

}  // namespace megatron
