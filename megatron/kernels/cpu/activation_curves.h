// Values and derivatives of activation functions over arrays.
#pragma once

#include <cstdint>

#include "megatron/kernels/activation.h"

namespace megatron::kernels {

/// y[i] = act(x[i]); y may be x. C is float or double.
template <class C>
void activate(Activation activation, const C* x, int64_t n, C* y);
/// Also derivative[i] = act'(x[i]); y may be x.
template <class C>
void activate_with_derivative(Activation activation, const C* x, int64_t n, C* y, C* derivative);
/// dx[i] = dy[i] act'(x[i]); dx may be x or dy.
template <class C>
void differentiate_activation(Activation activation, const C* x, const C* dy, int64_t n, C* dx);

}  // namespace megatron::kernels
