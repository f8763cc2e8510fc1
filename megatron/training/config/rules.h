// Derives settings from others, and checks for contradictions. Source: Megatron's validate_args and configs.
#pragma once

#include <string_view>

#include "megatron/base/mistakes.h"
#include "megatron/training/config/pretrain_config.h"
#include "megatron/training/microbatch_calculator.h"

namespace megatron {

/// Fills in every value that follows from others, and adds the rules that are broken. After it, and with no mistakes,
/// the configuration is complete but for the vocabulary of the tokenizer (training/vocab.h).
void resolve(PretrainConfig& config, int64_t world_size, Mistakes& mistakes);

// The parts of resolve(), in the order in which it calls them: each may use what those before it have filled in.
/// Resolves all of `transformer`; the vocabulary only if it is given.
void resolve_model(PretrainConfig& config, Mistakes& mistakes);
/// The part of resolve_model for mixtures of experts.
void resolve_experts(PretrainConfig& config, Mistakes& mistakes);
/// Adds a mistake for a list that has not one entry per layer.
void check_pattern(const LayerPattern& pattern, std::string_view flag, int64_t num_layers, Mistakes& mistakes);
void resolve_parallel(PretrainConfig& config, int64_t world_size, Mistakes& mistakes);
/// The part of resolve_parallel for context parallelism.
void resolve_context_parallel(const PretrainConfig& config, Mistakes& mistakes);
/// The part of resolve_parallel for the pipeline.
void resolve_pipeline(PretrainConfig& config, Mistakes& mistakes);
/// Values in host memory.
void check_offload(const PretrainConfig& config, Mistakes& mistakes);
void resolve_batches(PretrainConfig& config, Mistakes& mistakes);
void resolve_schedule(PretrainConfig& config, Mistakes& mistakes);
void resolve_data(PretrainConfig& config, Mistakes& mistakes);
void resolve_checkpoint(PretrainConfig& config, Mistakes& mistakes);
void resolve_logging(PretrainConfig& config, Mistakes& mistakes);
void resolve_profiling(PretrainConfig& config, Mistakes& mistakes);

}  // namespace megatron
