#include "megatron/training/loss_sum.h"

#include <utility>

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

LossSum loss_sum_of(std::vector<double> of_each, int64_t num_tokens) {
  LossSum loss{.num_tokens = num_tokens, .of_each = std::move(of_each)};
  for (const double sum : loss.of_each) loss.sum += sum;
  return loss;
}

LossSum sum_of_all_ranks(const LossSum& own, const ProcessGroupCollection& groups) {
  std::vector<double> of_each = own.of_each;
  const View sums{of_each.data(), DType::kFloat64, {static_cast<int64_t>(of_each.size())}, {1}};
  groups.pp.all_reduce(sums, ReduceOp::kSum, {.site = "loss of the last stage"}).wait();
  groups.dp_cp.all_reduce(sums, ReduceOp::kSum, {.site = "loss"}).wait();
  return loss_sum_of(std::move(of_each), num_tokens_of_all_ranks(own.num_tokens, groups));
}

}  // namespace megatron
