// Activation functions of experts, whose rows count with the probability of their expert.
#pragma once

#include "megatron/autograd/tape.h"
#include "megatron/kernels/activation.h"

namespace megatron {

/// Which activation the experts have.
struct ActivationChoice {
  kernels::Activation kind = kernels::Activation::kGelu;
  bool is_gated = false;  // x = [gate | up]
  kernels::GateOptions gate;
};
/// y[r] = weights[r] * act(x[r]), or weights[r] * act(gate) * (up + offset), rounded once. Only x and the weights are
/// saved: backward computes the activation again, in the same pass as the gradients.
/// @param x        [m, f] or [m, 2f], floating
/// @param weights  [m], floating; undefined: 1
/// @return         [m, f]
Tensor weighted_activation(Context& ctx, const Tensor& x, const Tensor& weights, const ActivationChoice& choice);

}  // namespace megatron
