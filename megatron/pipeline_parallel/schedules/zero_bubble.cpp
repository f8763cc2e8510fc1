#include "megatron/pipeline_parallel/schedules/zero_bubble.h"

#include <algorithm>

#include "megatron/pipeline_parallel/schedules/v_order.h"

namespace megatron {

Schedule zb_h1(int rank, int num_ranks, int num_micro_batches) {
  const int warm_up = std::min(num_ranks - 1 - rank, num_micro_batches);
  Schedule schedule;
  int forwards = 0, weights = 0;
  const auto add = [&](ActionKind kind, int micro_batch) {
    schedule.push_back({.kind = kind, .micro_batch = micro_batch});
  };
  while (forwards < warm_up) add(ActionKind::kF, forwards++);
  for (int m = 0; m < num_micro_batches; ++m) {
    const bool steady = forwards < num_micro_batches;
    if (steady) add(ActionKind::kF, forwards++);
    add(ActionKind::kB, m);
    if (!steady || m >= rank) add(ActionKind::kW, weights++);
  }
  while (weights < num_micro_batches) add(ActionKind::kW, weights++);
  return schedule;
}

Schedule zb_v(int rank, int num_ranks, int num_micro_batches) {
  const int num_planned = std::max(num_micro_batches, 2 * num_ranks - 1);
  const int to_turn = num_ranks - rank;  // stages from here to the turn of the V
  VOrder order(num_micro_batches);
  for (int i = 0; i < 2 * to_turn - 1; ++i) order.forward(0);
  for (int i = 0; i < rank; ++i) {
    order.forward(1);
    order.forward(0);
  }
  for (int i = 0; i < to_turn; ++i) {
    order.forward(1);
    order.backward_and_weight(1);
  }
  while (order.forwards(1) < order.forwards(0) || order.forwards(0) < num_planned) {
    if (order.forwards(0) < num_planned) order.forward(0);
    order.backward_and_weight(0);
    order.forward(1);
    order.backward_and_weight(1);
  }
  for (int i = 0; i < rank; ++i) {
    order.backward(0);
    order.backward(1);
  }
  for (int i = 0; i < to_turn; ++i) order.backward_and_weight(0);
  for (const int chunk : {1, 0})
    while (order.has_pending_weights(chunk)) order.weight(chunk);
  return order.take();
}

}  // namespace megatron
