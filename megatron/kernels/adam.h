// Adam and AdamW over flat buffers.
// The overloads for CUDA compute roots and divisions to two units of the last place. They take main parameters in fp32
// and other buffers in fp32, bf16 or fp16, and throw DtypeError for fp64.
#pragma once

#include "megatron/core/cuda_stream.h"
#include "megatron/core/step_state.h"
#include "megatron/core/view.h"
#include "megatron/kernels/optimizer_ranges.h"
#include "megatron/kernels/stochastic_rounding.h"

namespace megatron::kernels {

/// With g = gradient * inverse_scale * clip_factor:
///   m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2
///   p -= lr * ((m / bias_correction1) / (sqrt(v / bias_correction2) + epsilon) + wd * p)
/// Source: Loshchilov and Hutter 2019 (arXiv:1711.05101). Math in fp32 (fp64 if the parameter is fp64). Factors, lr, wd
/// and bias corrections come from StepState; nothing is written if found_inf is set.
/// Parameters and second moments in bf16 are rounded stochastically: to nearest, a change below half a unit of the last
/// place, 2^-9 to 2^-8 of the value, would be lost in every step, and a second moment with beta2 >= 1 - 2^-9 would
/// never fall. First moments are rounded to nearest: 1 - beta1 is above that, and gradients vary by more.
struct AdamArgs {
  View parameter;                    // [n] fp32 or fp64: the main parameters; bf16: weights without any
  View remainder;                    // uint8 [n, 2]: main parameter minus the bf16 model weight, instead of `parameter`
  ConstView gradient;                // [n] any floating dtype
  View first_moment, second_moment;  // [n] m and v, any floating dtype
  View model_weight;                 // [n] the parameter rounded to the dtype of the model; optional, none with bf16
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  bool decoupled_weight_decay = true;  // false: wd * p is added to g (L2 penalty), not to the step
  double learning_rate_multiplier = 1, weight_decay_multiplier = 1;
  const double* learning_rate = nullptr;  // in device memory, for a group of its own; null: state->learning_rate
  StochasticRounding rounding;            // in step state->step
  const StepState* state = nullptr;
};
/// @throw DtypeError for other dtypes of parameters, and for bf16 parameters with a model weight.
void adam(const CpuStream& stream, const AdamArgs& args);
void adam(const CudaStream& stream, const AdamArgs& args);

/// The same for all ranges of a table, with the same bits.
struct AdamRangesArgs {
  OptimizerRanges ranges;
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  bool decoupled_weight_decay = true;
  const StepState* state = nullptr;
};
void adam_ranges(const CpuStream& stream, const AdamRangesArgs& args);
void adam_ranges(const CudaStream& stream, const AdamRangesArgs& args);

}  // namespace megatron::kernels
