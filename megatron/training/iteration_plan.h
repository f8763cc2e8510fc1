// The actions of a run after each iteration, as far as its flags alone decide them.
#pragma once

#include <vector>

#include "megatron/training/config/pretrain_config.h"
#include "megatron/training/training_phases.h"

namespace megatron {

/// By --iterations-to-skip, --eval-interval, --save-interval, --exit-interval, --phase-transition-iterations and
/// --train-iters. The training loop goes by it, and what is counted before the first step. Iterations count from 1.
class IterationPlan {
 public:
  /// @param config  resolved; must outlive the plan.
  explicit IterationPlan(const PretrainConfig& config)
      : config_(config), phase_transitions_(phase_transitions_of(config.training)) {}

  /// Its batch is read and dropped; as in Megatron nothing else happens then: neither validation, nor checkpoint, nor
  /// exit.
  bool skips(int64_t iteration) const;
  bool validates_after(int64_t iteration) const;
  bool saves_after(int64_t iteration) const;
  /// By --non-persistent-save-interval, where no persistent checkpoint is due.
  bool saves_non_persistent_after(int64_t iteration) const;
  bool exits_after(int64_t iteration) const;

  /// Evaluations on the validation sets that a run which stands at `iteration` has before it, that at its end included.
  int64_t num_evaluations_left(int64_t iteration) const;

 private:
  bool is_due(int64_t iteration, const std::optional<int64_t>& interval) const;

  const PretrainConfig& config_;
  std::vector<int64_t> phase_transitions_;
};

}  // namespace megatron
