// Batches for steps that are planned and not taken.
#pragma once

#include <cstdint>
#include <vector>

#include "megatron/datasets/micro_batch.h"

namespace megatron {

/// `number` micro-batches of samples that are one document each, of token 0 alone.
std::vector<MicroBatch<int64_t>> blank_batches(int64_t number, int64_t num_samples, int64_t sequence_length);

}  // namespace megatron
