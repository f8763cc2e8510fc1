// The micro-batches that a rank takes in a step or an evaluation.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <ranges>

#include "megatron/datasets/host_batch.h"

namespace megatron {

/// The micro-batch of a data set: host_batch_of() describes it.
template <class T>
concept DatasetBatch = requires(const T& batch) {
  { host_batch_of(batch) } -> std::same_as<HostBatch>;
};

/// A view of micro-batches of any data set: they belong to others, and outlive it.
class MicroBatches {
 public:
  /// Those of a vector or a span, in their order.
  template <std::ranges::contiguous_range Range>
  requires DatasetBatch<std::ranges::range_value_t<Range>> MicroBatches(const Range& batches)
      : MicroBatches(std::data(batches), std::size(batches), sizeof(std::ranges::range_value_t<Range>)) {}
  /// One batch `number` times.
  template <DatasetBatch Batch>
  static MicroBatches repeated(const Batch& batch, int64_t number) {
    return MicroBatches(&batch, static_cast<size_t>(number), 0);
  }

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  HostBatch operator[](size_t m) const { return describe_(first_ + m * stride_bytes_); }
  MicroBatches first(size_t number) const {
    MicroBatches batches = *this;
    batches.size_ = number;
    return batches;
  }
  MicroBatches after(size_t number) const {
    MicroBatches batches = first(size_ - number);
    batches.first_ += number * stride_bytes_;
    return batches;
  }

 private:
  template <class Batch>
  MicroBatches(const Batch* first, size_t size, size_t stride_bytes)
      : first_(reinterpret_cast<const std::byte*>(first)),
        size_(size),
        stride_bytes_(stride_bytes),
        describe_([](const std::byte* batch) { return host_batch_of(*reinterpret_cast<const Batch*>(batch)); }) {}

  const std::byte* first_;
  size_t size_, stride_bytes_;
  HostBatch (*describe_)(const std::byte* batch);
};

}  // namespace megatron
