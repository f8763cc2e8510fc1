// Soft caps of logits and attention scores: values far from 0 are bent towards a bound that they never pass.
// Source: Gemma 2 (arXiv:2408.00118), section 2; Bello et al. 2016 (arXiv:1611.09940), section 4.1.
#pragma once

#include "megatron/core/cuda_stream.h"
#include "megatron/core/view.h"

namespace megatron::kernels {

/// y = cap * tanh(x / cap). Any floating dtypes, which may differ (fp64 only together); the last dimension is
/// contiguous.
struct SoftCapForwardArgs {
  ConstView x;     // [..., n]
  View y;          // shape of x; may be x
  double cap = 1;  // above 0
};
void soft_cap_forward(const CpuStream& stream, const SoftCapForwardArgs& args);
void soft_cap_forward(const CudaStream& stream, const SoftCapForwardArgs& args);

/// dx = dy * (1 - (y / cap)^2)
struct SoftCapBackwardArgs {
  ConstView y;   // of forward
  ConstView dy;  // shape of y
  View dx;       // shape of y; may be dy or y
  double cap = 1;
};
void soft_cap_backward(const CpuStream& stream, const SoftCapBackwardArgs& args);
void soft_cap_backward(const CudaStream& stream, const SoftCapBackwardArgs& args);

}  // namespace megatron::kernels
