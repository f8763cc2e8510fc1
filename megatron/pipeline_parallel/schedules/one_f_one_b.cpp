#include "megatron/pipeline_parallel/schedules/one_f_one_b.h"

#include <algorithm>

namespace megatron {

Schedule one_f_one_b(int rank, int num_ranks, int num_micro_batches, WeightGradient weight_gradient) {
  const bool is_first = rank == 0, is_last = rank == num_ranks - 1;
  const int warm_up = std::min(num_ranks - rank - 1, num_micro_batches);
  Schedule schedule;
  const auto add = [&](ActionKind kind, int micro_batch) {
    schedule.push_back({.kind = kind, .micro_batch = micro_batch});
  };
  const auto forward = [&](int m) {
    if (!is_first) add(ActionKind::kRecvForward, m);
    add(ActionKind::kF, m);
    if (!is_last) add(ActionKind::kSendForward, m);
  };
  const auto backward = [&](int m) {
    const bool split = weight_gradient == WeightGradient::kSplit;
    if (!is_last) add(ActionKind::kRecvBackward, m);
    add(split ? ActionKind::kB : ActionKind::kBW, m);
    if (!is_first) add(ActionKind::kSendBackward, m);
    if (split) add(ActionKind::kW, m);
  };
  for (int m = 0; m < warm_up; ++m) forward(m);
  for (int m = warm_up; m < num_micro_batches; ++m) {
    forward(m);
    backward(m - warm_up);
  }
  for (int m = num_micro_batches - warm_up; m < num_micro_batches; ++m) backward(m);
  return schedule;
}

}  // namespace megatron
