// The projection to the vocabulary and the cross entropy, in one op over chunks of tokens.
#pragma once

#include "megatron/autograd/tape.h"

namespace megatron {

struct LmHeadLossOptions {
  int64_t vocab_size = 0;  // true size; further rows of the weight are padding and take no part
  double label_smoothing = 0;
  bool recompute_logits = false;  // keep no logits: one more product in backward for t * v less memory
};

/// loss[s, b] = -log softmax(hidden w^T)[label], in fp32 (fp64 for fp64), label smoothing as commonly defined.
/// A chunk's logits are reduced while they are in cache. Kept for backward: hidden, the softmax statistics, and the
/// logits unless they are recomputed; backward overwrites logits with their gradient.
/// @param hidden  [s, b, h], floating. @param weight [v, h]. @param labels [s, b] int32 or int64, any strides; kept.
Tensor lm_head_loss(Context& ctx, const Tensor& hidden, Parameter& weight, const Tensor& labels,
                    const LmHeadLossOptions& options);

}  // namespace megatron
