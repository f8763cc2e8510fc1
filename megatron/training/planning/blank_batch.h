// A batch for steps that are planned and not taken.
#pragma once

#include <cstdint>

#include "megatron/datasets/micro_batch.h"

namespace megatron {

/// Samples that are one document each, of token 0 alone.
MicroBatch<int64_t> blank_batch(int64_t num_samples, int64_t sequence_length);

}  // namespace megatron
