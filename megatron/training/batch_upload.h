// Micro-batches of the loader as tensors of the model.
#pragma once

#include "megatron/datasets/micro_batch.h"
#include "megatron/models/gpt/gpt_model.h"

namespace megatron {

struct BatchUploadOptions {
  int64_t first_sample = 0;    // number of the first sample in the global batch
  double loss_weight = 1;      // see GptMicroBatch
  bool has_positions = false;  // position ids restart (--reset-position-ids): else a row's number is its position
};

/// Copies a micro-batch [b, s] to the device. Document cuts become spans of the layout.
GptMicroBatch upload(const Context& ctx, const MicroBatch<int64_t>& batch, const BatchUploadOptions& options);

}  // namespace megatron
