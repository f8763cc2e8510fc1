// How a configuration lays out ranks and what they hold.
#pragma once

#include "megatron/comm/parallel_layout.h"
#include "megatron/distributed/distributed_data_parallel_config.h"
#include "megatron/training/config/pretrain_config.h"

namespace megatron {

/// @param config  resolved. @throw ConfigError as ParallelLayout.
ParallelLayout parallel_layout_of(const PretrainConfig& config);
/// How gradients are summed over replicas.
DistributedDataParallelConfig data_parallel_config_of(const PretrainConfig& config);

}  // namespace megatron
