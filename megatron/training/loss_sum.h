// The one rule by which losses of tokens become the loss of a batch, whatever ranks and micro-batches hold them.
#pragma once

#include <cstdint>
#include <vector>

#include "megatron/comm/process_group_collection.h"
#include "megatron/training/micro_batches.h"

namespace megatron {

/// A batch's loss is the sum over its valid tokens divided by their number. Training adds the losses of a model up.
struct LossSum {
  double sum = 0;                    // of masked losses, of all losses of the model together
  int64_t num_tokens = 0;            // with mask
  std::vector<double> of_each = {};  // as `sum`, of each of Model::losses()
  double mean() const { return num_tokens > 0 ? sum / static_cast<double>(num_tokens) : 0; }
};
/// @param of_each  sums of the model's losses over `num_tokens` tokens
LossSum loss_sum_of(std::vector<double> of_each, int64_t num_tokens);

/// The valid tokens of micro-batches that this rank has read.
int64_t num_valid_tokens_of(const MicroBatches& batches);

/// The tokens of all data-parallel ranks together.
int64_t num_tokens_of_all_ranks(int64_t num_tokens, const ProcessGroupCollection& groups);

/// The sum over all ranks. Every rank passes the tokens that it has read, and the losses that it has computed: none but
/// on the last pipeline stage. Tensor-parallel ranks have the same.
LossSum sum_of_all_ranks(const LossSum& own, const ProcessGroupCollection& groups);

}  // namespace megatron
