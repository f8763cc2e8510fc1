// Activation functions of the MLP, plain and gated, with their gradients.
#pragma once

#include "megatron/autograd/tape.h"
#include "megatron/kernels/activation.h"

namespace megatron {

/// y = act(x + bias).
/// @param x     [..., f], floating; read and saved.
/// @param bias  [f] of the linear before, if that left it out; may be null. B computes its gradient too.
Tensor activation(Context& ctx, const Tensor& x, Parameter* bias, kernels::Activation kind);

/// y = act(gate) * (up + offset), where x + bias = [gate | up] along the last dimension: Megatron's gated linear unit.
/// @param x     [..., 2f], floating; read and saved.
/// @param bias  [2f]; may be null.
/// @return      [..., f]
Tensor gated_activation(Context& ctx, const Tensor& x, Parameter* bias, kernels::Activation kind,
                        const kernels::GateOptions& options);

}  // namespace megatron
