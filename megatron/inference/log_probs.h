// Log-probabilities of tokens.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "megatron/tokenizers/tokenizer.h"

namespace megatron {

struct TokenLogProb {
  TokenId id = 0;
  double log_prob = 0;
};

/// A token and what the model expected in its place.
struct ScoredToken {
  TokenId id = 0;
  double log_prob = 0;
  std::vector<TokenLogProb> top = {};  ///< the most likely tokens, the first most of all
};

/// The log-probability of a token by the softmax of the logits of its place, in double precision: temperature, top-k
/// and top-p do not change it. @param num_top  number of the most likely tokens to give; ties go to the smaller id.
ScoredToken score_token(std::span<const double> logits, TokenId id, int64_t num_top);

}  // namespace megatron
