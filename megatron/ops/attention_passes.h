// Forward and backward of attention without a tape, for ops that compute it in parts.
#pragma once

#include "megatron/core/context.h"
#include "megatron/core/sequence_layout.h"
#include "megatron/kernels/attention.h"

namespace megatron {

struct AttentionOutput {
  Tensor o;    // [s, b, n, dv]
  Tensor lse;  // [n, b, s] log of the denominators
};

/// kernels::attention_forward with memory of the arena. @param sink, max_logits  see there; may be undefined.
AttentionOutput attention_forward_pass(const Context& ctx, const Tensor& q, const Tensor& k, const Tensor& v,
                                       const ConstView& sink, const SequenceLayout& layout,
                                       const kernels::AttentionOptions& options, Tensor max_logits);

/// kernels::attention_backward with workspace of the arena. o and lse may be those over more keys than k has: then the
/// gradients are those of the part. @param args  without layout and workspace.
void attention_backward_pass(const Context& ctx, const SequenceLayout& layout, kernels::AttentionBackwardArgs args);

}  // namespace megatron
