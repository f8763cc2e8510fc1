// A micro-batch of samples, in the form that the model reads.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "megatron/datasets/dataset.h"
#include "megatron/datasets/host_batch.h"

namespace megatron {

/// b samples of s positions, row-major. `Id` is int32_t or int64_t.
template <class Id>
struct MicroBatch {
  int64_t num_samples = 0;        // b
  int64_t sequence_length = 0;    // s
  std::vector<Id> tokens;         // [b, s]
  std::vector<Id> labels;         // [b, s]
  std::vector<Id> position_ids;   // [b, s]
  std::vector<float> loss_mask;   // [b, s]
  std::vector<int32_t> cuts;      // document cuts of all samples, see GptSample
  std::vector<int64_t> cut_ends;  // [b], end of each sample's part of `cuts`
  /// Number of positions whose label counts, which divides the loss.
  int64_t num_valid_tokens = 0;
  /// Numbers of the samples in the dataset, and the data position after this batch: samples consumed by all ranks.
  std::vector<int64_t> sample_indices;  // [b]
  int64_t consumed_samples = 0;

  /// The cuts of sample `b`.
  std::span<const int32_t> document_cuts(int64_t b) const {
    const int64_t begin = b == 0 ? 0 : cut_ends[static_cast<size_t>(b - 1)];
    const int64_t end = cut_ends[static_cast<size_t>(b)];
    return std::span(cuts).subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
  }
};

/// The tensors "tokens", "labels" and "loss_mask", and the sequences "tokens".
HostBatch host_batch_of(const MicroBatch<int64_t>& batch);

/// Overwrites `batch` (keeping its memory) with the given samples; consumed_samples is left to the caller.
/// @throw DataError if samples differ in length or an id does not fit `Id`, and what Dataset::read throws.
template <class Id>
void assemble(const Dataset& dataset, std::span<const int64_t> sample_indices, MicroBatch<Id>& batch);

extern template void assemble(const Dataset&, std::span<const int64_t>, MicroBatch<int32_t>&);
extern template void assemble(const Dataset&, std::span<const int64_t>, MicroBatch<int64_t>&);

}  // namespace megatron
