#include "megatron/pipeline_parallel/schedules/one_f_one_b.h"

#include <algorithm>

#include "megatron/pipeline_parallel/schedules/backward.h"

namespace megatron {

Schedule one_f_one_b(int rank, int num_ranks, int num_micro_batches, WeightGradient weight_gradient) {
  const int warm_up = std::min(num_ranks - rank - 1, num_micro_batches);
  Schedule schedule;
  for (int m = 0; m < warm_up; ++m) schedule.push_back({.kind = ActionKind::kF, .micro_batch = m});
  for (int m = warm_up; m < num_micro_batches; ++m) {
    schedule.push_back({.kind = ActionKind::kF, .micro_batch = m});
    add_backward(schedule, 0, m - warm_up, weight_gradient);
  }
  for (int m = num_micro_batches - warm_up; m < num_micro_batches; ++m) add_backward(schedule, 0, m, weight_gradient);
  return schedule;
}

}  // namespace megatron
