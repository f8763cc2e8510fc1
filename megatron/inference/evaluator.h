// Losses and logits of token sequences that are given.
#pragma once

#include <span>
#include <vector>

#include "megatron/comm/gpu_ranks.h"
#include "megatron/core/context.h"
#include "megatron/models/model.h"
#include "megatron/tokenizers/tokenizer.h"

namespace megatron {

/// Sum over predicted tokens of -log p(token | tokens before it).
struct NextTokenLoss {
  double sum = 0;
  int64_t num_tokens = 0;

  double mean() const { return sum / static_cast<double>(num_tokens); }
  NextTokenLoss& operator+=(const NextTokenLoss& other) {
    sum += other.sum;
    num_tokens += other.num_tokens;
    return *this;
  }
};

/// One forward over whole sequences, one after the other, without a cache. Not thread-safe.
class Evaluator {
 public:
  /// @param model  on this rank, whole or in part: then all of its ranks evaluate the same sequences. @param gpu_ranks
  /// null where ranks have no GPU each. All must outlive the evaluator.
  Evaluator(const Context& ctx, const Model& model, const GpuRanks* gpu_ranks = nullptr)
      : ctx_(ctx), model_(model), gpu_ranks_(gpu_ranks) {}

  /// @return logits [tokens, vocabulary] without the columns of padding, row-major.
  /// @throw DataError for an empty sequence, a longer one than the model takes, or ids outside of its vocabulary.
  std::vector<float> logits(std::span<const TokenId> tokens);
  /// The loss of the tokens after the first, in double precision. @param logits  of logits() for the same tokens.
  NextTokenLoss loss(std::span<const TokenId> tokens, std::span<const float> logits) const;

 private:
  Context ctx_;
  const Model& model_;
  const GpuRanks* gpu_ranks_;
};

}  // namespace megatron
