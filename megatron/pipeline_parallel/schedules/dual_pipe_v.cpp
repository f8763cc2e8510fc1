#include "megatron/pipeline_parallel/schedules/dual_pipe_v.h"

#include <algorithm>

#include "megatron/pipeline_parallel/schedules/v_order.h"

namespace megatron {
namespace {

/// The end: alternating backwards of both chunks, of which the second half leaves its weight gradients for the gaps.
void cool_down(VOrder& order, int rank, int to_turn) {
  const int num_pairs = rank + 1;
  for (int i = 0; i < 2 * num_pairs; ++i) {
    const int chunk = i % 2 == 0 ? 1 : 0;
    if (i < num_pairs)
      order.backward_and_weight(chunk);
    else
      order.backward(chunk);
  }
  for (int i = 0; i < to_turn; ++i) {
    order.oldest_weight();
    order.backward(0);
  }
  for (int i = 0; i < num_pairs; ++i) order.oldest_weight();
}

}  // namespace

Schedule dual_pipe_v(int rank, int num_ranks, int num_micro_batches) {
  const int num_planned = std::max(num_micro_batches, 2 * num_ranks);
  const int to_turn = num_ranks - 1 - rank;  // ranks between this one and the turn of the V
  VOrder order(num_micro_batches);
  for (int i = 0; i < 2 * to_turn; ++i) order.forward(0);
  for (int i = 0; i < rank + 1; ++i) {
    order.forward(0);
    order.forward(1);
  }
  for (int i = 0; i < to_turn; ++i) {
    order.backward_and_weight(1);
    order.forward(1);
  }
  while (order.forwards(0) < num_planned) {
    order.forward(0);
    order.backward_and_weight(1);
    order.forward(1);
    order.backward_and_weight(0);
  }
  for (int i = 0; i < to_turn; ++i) {
    order.backward_and_weight(1);
    order.forward(1);
    order.backward_and_weight(0);
  }
  cool_down(order, rank, to_turn);
  return order.take();
}

}  // namespace megatron
