#include "megatron/datasets/sample_counts.h"

#include <algorithm>

#include "megatron/base/error.h"

namespace megatron {

SampleCounts count_samples(const RunLength& run) {
  const int64_t samples_per_evaluation = run.eval_iters * run.eval_global_batch_size.value_or(run.global_batch_size);
  SampleCounts counts;
  counts[index_of(Split::kTrain)] = run.train_samples.value_or(run.train_iters * run.global_batch_size);
  counts[index_of(Split::kTest)] = samples_per_evaluation;
  if (run.full_validation) return counts;

  int64_t num_evaluations = 1;
  if (!run.skip_train && samples_per_evaluation > 0) {
    require<ConfigError>(
        run.eval_interval > 0,
        "--eval-interval {} is not positive, but --eval-iters {} requests validation. Set an interval, "
        "or --eval-iters 0.",
        run.eval_interval, run.eval_iters);
    num_evaluations += run.train_iters / run.eval_interval;
    if (run.start_eval_at_iter) num_evaluations -= *run.start_eval_at_iter / run.eval_interval;
  }
  counts[index_of(Split::kValid)] = std::max<int64_t>(num_evaluations, 0) * samples_per_evaluation;
  return counts;
}

}  // namespace megatron
