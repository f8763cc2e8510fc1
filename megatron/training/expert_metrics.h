// The part of the log that is about mixtures of experts.
#pragma once

#include <vector>

#include "megatron/telemetry/training_log.h"
#include "megatron/training/config/pretrain_config.h"
#include "megatron/training/train_step.h"

namespace megatron {

/// The auxiliary losses of a step by Megatron's names: means over layers with experts and micro-batches, without the
/// coefficients. Empty for a dense model.
std::vector<NamedValue> mean_auxiliary_losses(const PretrainConfig& config, const TrainStepResult& result);

/// With moe.per_layer_logging, for each layer with experts: "moe/load_balancing_loss_layer_3" and the like, which are
/// Megatron's tags, and "moe/max_load_layer_3", "moe/median_load_layer_3" and "moe/min_load_layer_3": the tokens of the
/// most, of a middle and of the least loaded expert over those of the mean. Layers are counted from 0.
std::vector<NamedValue> expert_metrics_by_layer(const PretrainConfig& config, const TrainStepResult& result);

}  // namespace megatron
