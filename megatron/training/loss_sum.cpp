#include "megatron/training/loss_sum.h"

namespace megatron {

int64_t num_valid_tokens_of(const MicroBatches& batches) {
  int64_t num_tokens = 0;
  for (size_t m = 0; m < batches.size(); ++m) num_tokens += batches[m].num_valid_tokens;
  return num_tokens;
}

int64_t num_tokens_of_all_ranks(int64_t num_tokens, const ProcessGroupCollection& groups) {
  groups.dp_cp.all_reduce({&num_tokens, DType::kInt64, {1}, {1}}, ReduceOp::kSum, {.site = "valid tokens"}).wait();
  return num_tokens;
}

LossSum sum_of_all_ranks(const LossSum& own, const ProcessGroupCollection& groups) {
  LossSum total = own;
  const View sum{&total.sum, DType::kFloat64, {1}, {1}};
  groups.pp.all_reduce(sum, ReduceOp::kSum, {.site = "loss of the last stage"}).wait();
  groups.dp_cp.all_reduce(sum, ReduceOp::kSum, {.site = "loss"}).wait();
  total.num_tokens = num_tokens_of_all_ranks(own.num_tokens, groups);
  return total;
}

}  // namespace megatron
