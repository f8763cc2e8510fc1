// The phases of a run with --phase-transition-iterations.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "megatron/training/config/training_config.h"

namespace megatron {

/// Samples [begin, end) of a run, which have a train set of their own. The run exits at the end of a phase, so that the
/// next one can go on with other data flags.
struct TrainingPhase {
  int64_t begin = 0, end = 0;
  friend bool operator==(const TrainingPhase&, const TrainingPhase&) = default;
};

/// The iterations of --phase-transition-iterations in ascending order; none without it.
/// @throw ConfigError for a word that is not a positive number, or a number that comes twice
std::vector<int64_t> phase_transitions_of(const TrainingConfig& training);

/// The phase of the iteration that follows `iteration`; nothing without --phase-transition-iterations.
/// @param training  with --train-samples or --train-iters, and one batch size
std::optional<TrainingPhase> phase_after(const TrainingConfig& training, int64_t iteration);

}  // namespace megatron
