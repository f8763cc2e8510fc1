// Activation functions of the MLP, plain and gated, with the bias of the linear before them.
// The overloads for CUDA take fp32, bf16 and fp16, and throw NotSupported for fp64.
#pragma once

#include <limits>

#include "megatron/core/cuda_stream.h"
#include "megatron/core/view.h"
#include "megatron/kernels/column_sum.h"

namespace megatron::kernels {

enum class Activation {
  kGelu,         // x * Phi(x), Phi the normal distribution (erf)
  kGeluTanh,     // 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))
  kQuickGelu,    // x * sigmoid(1.702 x)
  kSilu,         // x * sigmoid(x)
  kSigmoid,      // sigmoid(x)
  kRelu,         // max(x, 0)
  kSquaredRelu,  // max(x, 0)^2
};

/// y = act(x + bias). Any floating dtypes, which may differ (fp64 only together); the last dimension is contiguous.
struct ActivationForwardArgs {
  ConstView x;     // [..., f]
  ConstView bias;  // [f]; optional
  View y;          // shape of x; may be x
  Activation activation = Activation::kGelu;
};
void activation_forward(const CpuStream& stream, const ActivationForwardArgs& args);
void activation_forward(const CudaStream& stream, const ActivationForwardArgs& args);

/// dx = dy * act'(x + bias);  dbias = sum over rows of dx.
struct ActivationBackwardArgs {
  ConstView x;              // [..., f]
  ConstView bias;           // [f]; as in forward
  ConstView dy;             // shape of x
  View dx;                  // shape of x; may be dy or x
  View dbias;               // [f]; optional
  bool accumulate = false;  // dbias += instead of =
  View workspace;           // uint8; needed with dbias
  Activation activation = Activation::kGelu;
};
void activation_backward(const CpuStream& stream, const ActivationBackwardArgs& args);
void activation_backward(const CudaStream& stream, const ActivationBackwardArgs& args);

constexpr int64_t activation_backward_workspace_bytes(int64_t num_rows, int64_t f, DType dtype) {
  return column_sum_workspace_bytes(num_rows, f, dtype);
}

/// gpt-oss's extensions of a gated activation (--activation-func-clamp-value, --glu-linear-offset).
struct GateOptions {
  double clamp = std::numeric_limits<double>::infinity();  // gate = min(gate, clamp), up = clip(up, -clamp, clamp)
  double linear_offset = 0;                                // up + linear_offset
};

/// y = act(gate + gate_bias) * (up + up_bias + linear_offset), the clamps applied after the biases. Gate and up are
/// views of their own; for Megatron's fc1 output [..., 2f] the gate is the first half of the last dimension.
/// swiglu: kSilu; geglu: kGelu or kGeluTanh; quick-geglu: kQuickGelu; attention output gate: kSigmoid.
struct GatedActivationForwardArgs {
  ConstView gate, up;            // [..., f], rows with any strides
  ConstView gate_bias, up_bias;  // [f]; both or none
  View y;                        // [..., f]; may be gate or up
  Activation activation = Activation::kSilu;
  GateOptions options;
};
void gated_activation_forward(const CpuStream& stream, const GatedActivationForwardArgs& args);
void gated_activation_forward(const CudaStream& stream, const GatedActivationForwardArgs& args);

/// A clamped value passes no gradient; a value equal to the bound does.
struct GatedActivationBackwardArgs {
  ConstView gate, up;            // [..., f]
  ConstView gate_bias, up_bias;  // [f]; as in forward
  ConstView dy;                  // [..., f]
  View dgate, dup;               // [..., f]; may be gate and up
  View dgate_bias, dup_bias;     // [f]; both or none
  bool accumulate = false;       // the bias gradients += instead of =
  View workspace;                // uint8; needed with bias gradients
  Activation activation = Activation::kSilu;
  GateOptions options;
};
void gated_activation_backward(const CpuStream& stream, const GatedActivationBackwardArgs& args);
void gated_activation_backward(const CudaStream& stream, const GatedActivationBackwardArgs& args);

constexpr int64_t gated_activation_backward_workspace_bytes(int64_t num_rows, int64_t f, DType dtype) {
  return column_sum_workspace_bytes(num_rows, 2 * f, dtype);
}

}  // namespace megatron::kernels
