// Batches whose samples are of several documents.
#pragma once

#include <vector>

#include "megatron/datasets/micro_batch.h"
#include "megatron/training/trainer.h"

namespace megatron::testing {

using Cuts = std::vector<int32_t>;
/// Documents of the samples of a global batch, in turn.
using Mix = std::vector<Cuts>;

/// batches_of() the trainer's rank, with the documents of a mix.
std::vector<MicroBatch<int64_t>> batches_of_mix(const Trainer& trainer, int64_t step, const Mix& mix);

}  // namespace megatron::testing
