#include "megatron/training/iteration_plan.h"

#include <algorithm>

namespace megatron {

bool IterationPlan::skips(int64_t iteration) const {
  return std::ranges::find(config_.training.iterations_to_skip, iteration) != config_.training.iterations_to_skip.end();
}

bool IterationPlan::is_due(int64_t iteration, const std::optional<int64_t>& interval) const {
  return interval && iteration % *interval == 0 && !skips(iteration);
}

bool IterationPlan::validates_after(int64_t iteration) const {
  const ValidationConfig& validation = config_.validation;
  return validation.evaluates() && iteration >= validation.start_eval_at_iter.value_or(0) &&
         is_due(iteration, validation.eval_interval);
}

bool IterationPlan::saves_after(int64_t iteration) const {
  return config_.checkpoint.save && is_due(iteration, config_.checkpoint.save_interval);
}

bool IterationPlan::saves_non_persistent_after(int64_t iteration) const {
  return config_.checkpoint.save && is_due(iteration, config_.checkpoint.non_persistent_save_interval) &&
         !saves_after(iteration);
}

bool IterationPlan::exits_after(int64_t iteration) const {
  return is_due(iteration, config_.training.exit_interval) || std::ranges::binary_search(phase_transitions_, iteration);
}

int64_t IterationPlan::num_evaluations_left(int64_t iteration) const {
  const ValidationConfig& validation = config_.validation;
  if (!validation.evaluates()) return 0;
  if (validation.skip_train) return 1;
  const int64_t end = config_.training.train_iters.value_or(0);
  const auto first_after = [&](int64_t interval) { return (iteration / interval + 1) * interval; };
  int64_t last = end, at_the_end = 1;
  const auto transition = std::ranges::upper_bound(phase_transitions_, iteration);
  if (transition != phase_transitions_.end() && *transition <= last) last = *transition, at_the_end = 0;
  if (const auto& interval = config_.training.exit_interval)
    for (int64_t i = first_after(*interval); i <= last; i += *interval)
      if (exits_after(i)) last = i, at_the_end = 0;
  int64_t num_between = 0;
  if (const auto& interval = validation.eval_interval)
    for (int64_t i = first_after(*interval); i <= last; i += *interval) num_between += validates_after(i);
  return num_between + at_the_end;
}

}  // namespace megatron
