// Activation functions whose rows count with a number of their own: the probability with which a token was routed to
// its expert. One pass over memory forward and one backward. Floating dtypes may differ (fp64 only together);
// dimension 0 may be bounded.
#pragma once

#include "megatron/core/cuda_stream.h"
#include "megatron/kernels/activation.h"

namespace megatron::kernels {

/// Half `index` of the columns of x: gate and up of a gated activation.
template <class AnyView>
AnyView half_of_rows(AnyView x, int index) {
  if (!x.defined()) return x;
  x.shape[-1] /= 2;
  const int64_t bytes = index * x.shape[-1] * x.strides[-1] * size_of(x.dtype);
  x.data = const_cast<char*>(static_cast<const char*>(x.data)) + bytes;
  return x;
}

/// y[r] = weights[r] * act(x[r]), or weights[r] * act(gate) * (up + linear_offset) with x = [gate | up] and the clamps
/// of GateOptions. The result is rounded once.
struct WeightedActivationForwardArgs {
  ConstView x;        // [m, f], or [m, 2f] if gated
  ConstView weights;  // [m]
  View y;             // [m, f]
  Activation activation = Activation::kSilu;
  bool is_gated = false;
  GateOptions options;
};
void weighted_activation_forward(const CpuStream& stream, const WeightedActivationForwardArgs& args);
void weighted_activation_forward(const CudaStream& stream, const WeightedActivationForwardArgs& args);

/// dx = the gradient of the activation for weights[r] * dy[r];  dweights[r] = sum over the columns of dy[r] times the
/// activation without its weight, in fp32 (fp64 for fp64); 0 past the true number of rows.
struct WeightedActivationBackwardArgs {
  ConstView x;        // as in forward
  ConstView weights;  // [m]
  ConstView dy;       // [m, f]
  View dx;            // shape of x; may be x; optional
  View dweights;      // [m]; optional
  Activation activation = Activation::kSilu;
  bool is_gated = false;
  GateOptions options;
};
void weighted_activation_backward(const CpuStream& stream, const WeightedActivationBackwardArgs& args);
void weighted_activation_backward(const CudaStream& stream, const WeightedActivationBackwardArgs& args);

}  // namespace megatron::kernels
