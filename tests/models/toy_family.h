// A family with another skeleton than a GPT's and data of its own: the least that a new family must bring.
#pragma once

#include <cstdint>

#include "megatron/models/model_family.h"

namespace megatron::testing {

/// The settings that only toys have.
struct ToyOptions {
  int64_t num_kinds = 3;  ///< --toy-num-kinds
};

/// Reads words and tells two things of each, the next word and its kind: two losses, "word loss" and "kind loss".
/// Counts the kind loss again, as the metric "kind loss again". Its batches are made of the tokens of the data sets.
ModelFamily toy_family();

/// The samples numbered first_sample, ...: words that count upwards, masked here and there.
OwnedBatch toy_batch(int64_t first_sample, int64_t num_samples, int64_t sequence_length);

}  // namespace megatron::testing
