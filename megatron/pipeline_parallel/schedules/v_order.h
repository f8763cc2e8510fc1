// Builds the order of a rank with two chunks that are placed as a V.
#pragma once

#include <algorithm>
#include <array>
#include <deque>
#include <utility>

#include "megatron/pipeline_parallel/action.h"

namespace megatron {

/// Appends actions and counts the micro-batches of each kind and chunk. Actions of micro-batches beyond the last one
/// are counted but left out: a short step is a long one with gaps.
class VOrder {
 public:
  explicit VOrder(int num_micro_batches) : num_micro_batches_(num_micro_batches) {}

  void forward(int chunk) { add(ActionKind::kF, chunk, forwards_[static_cast<size_t>(chunk)]++); }
  /// The gradient of the chunk's input; that of its weights is pending.
  void backward(int chunk) {
    const int micro_batch = backwards_[static_cast<size_t>(chunk)]++;
    add(ActionKind::kB, chunk, micro_batch);
    pending_.emplace_back(chunk, micro_batch);
  }
  /// The chunk's first pending weight gradient.
  void weight(int chunk) { run(std::ranges::find(pending_, chunk, &std::pair<int, int>::first)); }
  /// The first pending weight gradient of both chunks.
  void oldest_weight() { run(pending_.begin()); }
  void backward_and_weight(int chunk) {
    backward(chunk);
    weight(chunk);
  }
  int forwards(int chunk) const { return forwards_[static_cast<size_t>(chunk)]; }
  bool has_pending_weights(int chunk) const {
    return std::ranges::find(pending_, chunk, &std::pair<int, int>::first) != pending_.end();
  }
  Schedule take() { return std::move(schedule_); }

 private:
  void run(std::deque<std::pair<int, int>>::iterator pending) {
    add(ActionKind::kW, pending->first, pending->second);
    pending_.erase(pending);
  }
  void add(ActionKind kind, int chunk, int micro_batch) {
    if (micro_batch < num_micro_batches_)
      schedule_.push_back({.kind = kind, .chunk = chunk, .micro_batch = micro_batch});
  }

  int num_micro_batches_;
  std::array<int, 2> forwards_{}, backwards_{};
  std::deque<std::pair<int, int>> pending_;  // chunk and micro-batch, in the order of their backwards
  Schedule schedule_;
};

}  // namespace megatron
