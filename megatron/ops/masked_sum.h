// Reduces the losses of tokens to the training loss.
#pragma once

#include "megatron/autograd/tape.h"

namespace megatron {

/// weight * sum of mask * loss; tokens with mask 0 add nothing, even if their loss is not finite.
/// @param loss    [s, b], floating. @param mask [s, b], floating, any strides; kept.
/// @param weight  [1] float64, kept; undefined: 1. In device memory, as it differs between steps.
/// @return        [1] float64, the sum over a whole micro-batch. Division by the global count of valid
///                tokens is in the seed gradient (StepState::loss_seed).
Tensor masked_sum(Context& ctx, const Tensor& loss, const Tensor& mask, const Tensor& weight = {});

}  // namespace megatron
