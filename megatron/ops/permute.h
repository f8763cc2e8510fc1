// Tokens to the rows of their experts, and back. Megatron Core: core/transformer/moe/moe_utils.py.
#pragma once

#include "megatron/autograd/tape.h"
#include "megatron/core/row_groups.h"

namespace megatron {

/// The rows of all experts: by expert, and within an expert by token. Made once for a routing and kept for backward.
struct Permutation {
  RowGroups groups;
  Tensor tokens;  // [capacity] int32, the token of each row; -1 past the last
  Tensor slots;   // [t, s] int32, the rows of each token; -1 past the last
  int64_t num_tokens() const { return slots.size(0); }
};

struct PermutationOptions {
  int64_t capacity = 0;               // rows of all experts together: tokens * topk if none is dropped or added
  int64_t max_experts_per_token = 0;  // topk, or all experts where padding may add tokens
  bool is_exact = true;               // there are always as many rows as the capacity
};
/// @param map [t, e] uint8.
Permutation sort_by_expert(const Context& ctx, const Tensor& map, const PermutationOptions& options);

/// rows[r] = x[token of r]. @param x [t, h]. @return [capacity, h].
Tensor permute(Context& ctx, const Tensor& x, const Permutation& permutation);
/// The probability of each row. @param probs [t, e]. @return [capacity], dtype of probs.
Tensor permute_probs(Context& ctx, const Tensor& probs, const Permutation& permutation);
/// y[t] = sum of the rows of token t, by ascending expert, in fp32. @param rows [capacity, h]. @return [t, h].
Tensor unpermute(Context& ctx, const Tensor& rows, const Permutation& permutation);

}  // namespace megatron
