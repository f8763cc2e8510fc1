#include "megatron/pipeline_parallel/schedules/gpipe.h"

#include "megatron/pipeline_parallel/schedules/backward.h"

namespace megatron {

Schedule gpipe(int num_micro_batches, WeightGradient weight_gradient) {
  Schedule schedule;
  for (int m = 0; m < num_micro_batches; ++m) schedule.push_back({.kind = ActionKind::kF, .micro_batch = m});
  for (int m = 0; m < num_micro_batches; ++m) add_backward(schedule, 0, m, weight_gradient);
  return schedule;
}

}  // namespace megatron
