#include "megatron/training/planning/blank_batch.h"

namespace megatron {

MicroBatch<int64_t> blank_batch(int64_t num_samples, int64_t sequence_length) {
  MicroBatch<int64_t> batch;
  batch.num_samples = num_samples;
  batch.sequence_length = sequence_length;
  batch.num_valid_tokens = num_samples * sequence_length;
  const auto num_tokens = static_cast<size_t>(batch.num_valid_tokens);
  for (std::vector<int64_t>* ids : {&batch.tokens, &batch.labels, &batch.position_ids}) ids->resize(num_tokens);
  batch.loss_mask.resize(num_tokens, 1.0F);
  batch.cut_ends.resize(static_cast<size_t>(num_samples));
  return batch;
}

}  // namespace megatron
