#include "megatron/inference/evaluator.h"

#include <algorithm>
#include <cmath>

#include "megatron/core/copy.h"

namespace megatron {

std::vector<float> Evaluator::logits(std::span<const TokenId> tokens) {
  const auto s = std::ssize(tokens);
  const int64_t most = model_.config().max_sequence_length, v = model_.config().vocab_size;
  require<DataError>(s > 0 && s <= most, "[eval] a sequence has {} tokens; the model takes 1 to {}.", s, most);
  for (const TokenId id : tokens)
    require<DataError>(id >= 0 && id < v, "[eval] token {} is not in the model's vocabulary of {}.", id, v);
  Tensor ids = ctx_.empty("eval.tokens", {s, 1}, DType::kInt32, MemoryUse::kData);
  write_values(ctx_.device, tokens, ids);
  const Tensor all = model_.logits(ctx_, ids, SequenceLayout::uniform(ctx_, {.s = s, .b = 1}), nullptr);
  const int64_t padded = all.shape()[2];
  std::vector<float> rows(static_cast<size_t>(s * v));
  dispatch_floating(all.dtype(), [&]<class T>() {
    const std::vector<T> values = read_values<T>(ctx_.device, all);
    if (gpu_ranks_) gpu_ranks_->throw_if_failed();
    for (int64_t row = 0; row < s; ++row)
      for (int64_t column = 0; column < v; ++column)
        rows[static_cast<size_t>(row * v + column)] =
            static_cast<float>(values[static_cast<size_t>(row * padded + column)]);
  });
  return rows;
}

NextTokenLoss Evaluator::loss(std::span<const TokenId> tokens, std::span<const float> logits) const {
  const auto v = static_cast<size_t>(model_.config().vocab_size);
  NextTokenLoss loss;
  for (size_t i = 0; i + 1 < tokens.size(); ++i) {
    const auto row = logits.subspan(i * v, v);
    const double max = *std::ranges::max_element(row);
    double sum = 0;
    for (const float logit : row) sum += std::exp(static_cast<double>(logit) - max);
    loss.sum += max + std::log(sum) - static_cast<double>(row[static_cast<size_t>(tokens[i + 1])]);
    ++loss.num_tokens;
  }
  return loss;
}

}  // namespace megatron
