// The batch-size and learning-rate schedules that a configuration asks for.
#pragma once

#include <string_view>
#include <vector>

#include "megatron/optimizer/param_scheduler.h"
#include "megatron/training/config/pretrain_config.h"
#include "megatron/training/microbatch_calculator.h"

namespace megatron {

/// The batch sizes of training: one, or those of --step-batch-size-schedule or --rampup-batch-size.
/// @throw ConfigError as parse_step_batch_size_schedule() and ramp_steps().
std::vector<BatchSizeStep> batch_size_steps_of(const PretrainConfig& config);
/// The flag that says so.
std::string_view batch_size_flag(const TrainingConfig& training);
/// Constant, or by --step-batch-size-schedule or --rampup-batch-size. @throw ConfigError as MicrobatchCalculator.
MicrobatchCalculator microbatch_calculator_of(const PretrainConfig& config);
/// The same for evaluation batches.
MicrobatchCalculator eval_microbatch_calculator_of(const PretrainConfig& config);

/// Lengths in samples: iterations times --global-batch-size. As in Megatron, under a batch-size schedule that is one
/// micro-batch per data-parallel rank.
ParamSchedulerConfig param_scheduler_config_of(const PretrainConfig& config);

}  // namespace megatron
