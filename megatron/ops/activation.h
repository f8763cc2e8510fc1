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

/// y = x * sigmoid(gate), the gate on the output of attention (Qiu et al. 2025, arXiv:2505.06708). Megatron Core:
/// attention_output_gate. The sigmoid and the product are in fp32 (fp64 for fp64).
/// @param x     [s, b, f], floating; read and saved.
/// @param gate  as many elements as x in any shape; read and saved.
Tensor sigmoid_gate(Context& ctx, const Tensor& x, const Tensor& gate);

}  // namespace megatron
