// y = x W^T + b, and the three matmuls of forward and backward.
#pragma once

#include "megatron/autograd/tape.h"

namespace megatron {

/// y[..., o] = x[..., i] w[o, i]^T + bias[o].
/// @param x       [..., i], floating; read, and saved if the weight is trainable. A bounded dimension 0 stays
/// bounded.
/// @param weight  [o, i], dtype of x.
/// @param bias    [o], dtype of x; may be null.
/// @return        [..., o], dtype of x. dx belongs to B; dw and db to W.
/// @throw ShapeError if the last dimension of x is not i.
Tensor linear(Context& ctx, const Tensor& x, Parameter& weight, Parameter* bias);

// The matmuls, for nodes that put communication between them (tensor_parallel). Each counts its operations.

/// y = x w^T + bias.
Tensor linear_forward(const Context& ctx, const Tensor& x, ConstView weight, ConstView bias);
/// The same into the caller's memory: rows of a larger result.
void linear_forward_into(const Context& ctx, const Tensor& x, ConstView weight, ConstView bias, Tensor y);
/// dx = dy w.
Tensor linear_dgrad(const Context& ctx, const Tensor& dy, ConstView weight);
/// The same into the caller's memory: a chunk of a larger gradient.
void linear_dgrad_into(const Context& ctx, const Tensor& dy, ConstView weight, Tensor dx);
/// main_grad of weight (+)= dy^T x, and of bias (+)= column sums of dy; frozen or null ones are left out.
void linear_wgrad(const Context& ctx, const Tensor& dy, const Tensor& x, Parameter& weight, Parameter* bias);
/// dw = dy^T x in the caller's memory, of the dtype of x or float32.
void linear_wgrad_into(const Context& ctx, const Tensor& dy, const Tensor& x, Tensor dw);
/// main_grad of bias (+)= column sums of dy; nothing if it is frozen.
void linear_bias_grad(const Context& ctx, const Tensor& dy, Parameter& bias);

}  // namespace megatron
