// Stochastic gradient descent with momentum over flat buffers.
// The overloads for CUDA take main parameters in fp32 and other buffers in fp32, bf16 or fp16, and throw DtypeError for
// fp64.
#pragma once

#include "megatron/core/cuda_stream.h"
#include "megatron/core/step_state.h"
#include "megatron/core/view.h"
#include "megatron/kernels/optimizer_ranges.h"

namespace megatron::kernels {

/// With g = gradient * inverse_scale * clip_factor + wd * p:  m = momentum * m + g;  p -= lr * m.
/// m starts at zero; no dampening, no Nesterov. Math in fp32 (fp64 if the parameter is fp64). If
/// StepState::found_inf is set nothing is written.
struct SgdArgs {
  View parameter;        // [n] fp32 or fp64: the master weights
  ConstView gradient;    // [n] any floating dtype
  View momentum_buffer;  // [n] m, any floating dtype; undefined if momentum is 0
  View model_weight;     // [n] the parameter rounded to the dtype of the model; optional
  double momentum = 0.9;
  double learning_rate_multiplier = 1, weight_decay_multiplier = 1;
  const double* learning_rate = nullptr;  // in device memory, for a group of its own; null: state->learning_rate
  const StepState* state = nullptr;
};
void sgd(const CpuStream& stream, const SgdArgs& args);
void sgd(const CudaStream& stream, const SgdArgs& args);

/// The same for all ranges of a table, with the same bits; the first moment is the momentum buffer.
struct SgdRangesArgs {
  OptimizerRanges ranges;
  double momentum = 0.9;
  const StepState* state = nullptr;
};
void sgd_ranges(const CpuStream& stream, const SgdRangesArgs& args);
void sgd_ranges(const CudaStream& stream, const SgdRangesArgs& args);

}  // namespace megatron::kernels
