// The batch-size and learning-rate schedules that a configuration asks for.
#pragma once

#include "megatron/optimizer/param_scheduler.h"
#include "megatron/training/config/pretrain_config.h"
#include "megatron/training/microbatch_calculator.h"

namespace megatron {

/// Constant, or by --step-batch-size-schedule. @throw ConfigError as MicrobatchCalculator.
MicrobatchCalculator microbatch_calculator_of(const PretrainConfig& config);
/// The same for evaluation batches.
MicrobatchCalculator eval_microbatch_calculator_of(const PretrainConfig& config);

/// Lengths in samples: iterations times --global-batch-size. As in Megatron, under a batch-size schedule that is one
/// micro-batch per data-parallel rank.
ParamSchedulerConfig param_scheduler_config_of(const PretrainConfig& config);

}  // namespace megatron
