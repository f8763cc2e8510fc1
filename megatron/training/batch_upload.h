// Micro-batches of a data set as tensors of a model.
#pragma once

#include <span>

#include "megatron/core/context_layouts.h"
#include "megatron/datasets/host_batch.h"
#include "megatron/models/batch.h"

namespace megatron {

struct BatchUploadOptions {
  int64_t first_sample = 0;  // number of the first sample in the global batch
  /// The cuts of sequences that are parts of samples: see SequenceTable.
  int64_t sample_length = 0, first_position = 0;
  std::span<const int32_t> row_numbers = {};  // see BatchPlace; of a single sample, which no ranks share
  double loss_weight = 1;                     // becomes the tensor "loss_weight", [1] float64
  bool has_positions = false;  // position ids restart (--reset-position-ids): else a row's number is its position
  /// With several ranks the tensors are this rank's part (ContextBatches); the length is that of each sequence.
  ContextLayoutOptions context = {};
};

/// Copies a micro-batch to the device: each tensor [b, s] as [s, b], and the sequences as layouts, document cuts as
/// spans of them.
Batch upload(const Context& ctx, const HostBatch& batch, const BatchUploadOptions& options);

}  // namespace megatron
