// Checks that the validation and test sets of a run have the samples that it will take.
#pragma once

#include "megatron/datasets/dataset_builder.h"
#include "megatron/training/trainer.h"

namespace megatron {

/// To be called before the first step, once it is known where the run stands.
/// @throw ConfigError that names each validation and test set with too few samples, those it has and those it needs.
void require_evaluation_samples(const PretrainConfig& config, const GptDatasets& datasets,
                                const TrainingProgress& progress);

}  // namespace megatron
