// Rows that count with the probability of their expert.
#pragma once

#include "megatron/autograd/tape.h"
#include "megatron/kernels/activation.h"

namespace megatron {

/// y[r] = weights[r] * x[r]. @param x [m, h]. @param weights [m], floating.
Tensor scale_rows(Context& ctx, const Tensor& x, const Tensor& weights);

/// Which activation the experts have.
struct ActivationChoice {
  kernels::Activation kind = kernels::Activation::kGelu;
  bool is_gated = false;  // x = [gate | up]
  kernels::GateOptions gate;
};
/// y[r] = weights[r] * act(x[r]), or weights[r] * act(gate) * (up + offset). Only x and the weights are saved: backward
/// computes the activation again. @param x [m, f] or [m, 2f]. @param weights [m], floating; undefined: 1. @return
/// [m, f].
Tensor weighted_activation(Context& ctx, const Tensor& x, const Tensor& weights, const ActivationChoice& choice);

}  // namespace megatron
