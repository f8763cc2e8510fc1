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

/// Weights of a loss that is a mean over some of the tokens, [1] float64 in device memory.
struct MeanLossWeights {
  Tensor mean;   // 1 / number of the tokens of the mean
  Tensor share;  // weight * number of all tokens / number of the tokens of the mean: of masked_sum() of a training loss
};
/// @param mask, part  [s, b], floating, any strides: all tokens, and those of the mean. @param weight  as in
/// masked_sum.
MeanLossWeights mean_loss_weights(const Context& ctx, const Tensor& mask, const Tensor& part, const Tensor& weight);

/// The value of `loss`, with another loss attached: on the way back that gets `factor` times the gradient of `loss`, so
/// that it is trained without being a part of the sum.
/// @param loss, other  [1] float64
Tensor attach_loss(Context& ctx, const Tensor& loss, const Tensor& other, double factor);

}  // namespace megatron
