// The micro-batches that a rank takes in a step or an evaluation.
#pragma once

#include <concepts>
#include <cstdint>
#include <span>

#include "megatron/datasets/micro_batch.h"

namespace megatron {

/// A view: the batches belong to others, and outlive it.
class MicroBatches {
 public:
  using Batch = MicroBatch<int64_t>;

  /// Those of a vector or a span, in their order.
  template <std::convertible_to<std::span<const Batch>> Batches>
  MicroBatches(const Batches& batches) : MicroBatches(std::span<const Batch>(batches)) {}
  explicit MicroBatches(std::span<const Batch> batches) : first_(batches.data()), size_(batches.size()) {}
  /// One batch `number` times.
  static MicroBatches repeated(const Batch& batch, int64_t number) {
    MicroBatches batches(std::span(&batch, 1));
    batches.size_ = static_cast<size_t>(number);
    batches.stride_ = 0;
    return batches;
  }

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  const Batch& operator[](size_t m) const { return first_[m * stride_]; }
  MicroBatches first(size_t number) const {
    MicroBatches batches = *this;
    batches.size_ = number;
    return batches;
  }
  MicroBatches after(size_t number) const {
    MicroBatches batches = first(size_ - number);
    batches.first_ += number * stride_;
    return batches;
  }

 private:
  const Batch* first_;
  size_t size_, stride_ = 1;
};

}  // namespace megatron
