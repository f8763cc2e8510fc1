// How a configuration lays out ranks and what they hold and do.
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
/// Whether the schedule can run the micro-batches of every step. Not among Megatron's rules of the command line: it
/// finds this when the first step begins.
void check_pipeline_schedule(const PretrainConfig& config, Mistakes& mistakes);
/// How the flags that give counts share the layers.
LayerSplit layer_split_of(const PretrainConfig& config);
/// Which layers each pipeline stage has. @throw ConfigError as split_layers and parse_layout.
PipelineLayout pipeline_layout_of(const PretrainConfig& config);
/// How tensor-parallel linear layers hide their communication.
TensorCommOverlap tensor_comm_overlap_of(const PretrainConfig& config);
/// How gradients are summed over replicas.
DistributedDataParallelConfig data_parallel_config_of(const PretrainConfig& config);

}  // namespace megatron
