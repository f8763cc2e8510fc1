#include "megatron/pipeline_parallel/schedules/zero_bubble.h"

#include <algorithm>
#include <array>
#include <utility>

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

namespace {

/// Appends actions of two chunks, counting the micro-batches of each kind. Those beyond the last micro-batch are
/// counted and left out: a short step is a long one with holes.
class VOrder {
 public:
  explicit VOrder(int num_micro_batches) : num_micro_batches_(num_micro_batches) {}

  void forward(int chunk) { add(ActionKind::kF, chunk, forwards_[static_cast<size_t>(chunk)]++); }
  void backward(int chunk) { add(ActionKind::kB, chunk, backwards_[static_cast<size_t>(chunk)]++); }
  void weight(int chunk) { add(ActionKind::kW, chunk, weights_[static_cast<size_t>(chunk)]++); }
  void backward_and_weight(int chunk) {
    backward(chunk);
    weight(chunk);
  }
  int forwards(int chunk) const { return forwards_[static_cast<size_t>(chunk)]; }
  bool has_weights_left(int chunk) const {
    return weights_[static_cast<size_t>(chunk)] < backwards_[static_cast<size_t>(chunk)];
  }
  Schedule take() { return std::move(schedule_); }

 private:
  void add(ActionKind kind, int chunk, int micro_batch) {
    if (micro_batch < num_micro_batches_)
      schedule_.push_back({.kind = kind, .chunk = chunk, .micro_batch = micro_batch});
  }
  int num_micro_batches_;
  std::array<int, 2> forwards_{}, backwards_{}, weights_{};
  Schedule schedule_;
};

}  // namespace

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
    while (order.has_weights_left(chunk)) order.weight(chunk);
  return order.take();
}

}  // namespace megatron
