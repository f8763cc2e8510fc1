// The tensors that a step of one optimizer state reads and writes.
#pragma once

#include "megatron/kernels/optimizer_ranges.h"
#include "megatron/optimizer/optimizer_state.h"

namespace megatron {

/// Flat and contiguous; those that the state does not have are undefined.
struct StepOperands {
  explicit StepOperands(OptimizerState& state)
      : size(state.end - state.begin),
        parameter(state.main.view()),
        remainder(state.remainder.view()),
        gradient(state.of(state.parameter->main_grad()).view()),
        first_moment(state.exp_avg.view()),
        second_moment(state.exp_avg_sq.view()),
        model_weight(state.steps_weights() ? View{} : state.of(state.parameter->value()).view()),
        has_remainder(state.remainder.defined()) {}
  kernels::RangeDTypes dtypes() const {
    return {.has_remainders = has_remainder,
            .parameter = parameter.dtype,
            .gradient = gradient.dtype,
            .model_weight = model_weight.dtype,
            .first_moment = first_moment.dtype,
            .second_moment = second_moment.dtype};
  }
  kernels::OptimizerRange range() const {
    return {.parameter = parameter.data,
            .remainder = remainder.data,
            .gradient = gradient.data,
            .first_moment = first_moment.data,
            .second_moment = second_moment.data,
            .model_weight = model_weight.data,
            .size = size};
  }

  int64_t size;
  View parameter, remainder, gradient, first_moment, second_moment, model_weight;
  bool has_remainder;
};

/// Says whether a step draws random numbers; SGD, which has no second moment, rounds nothing so.
inline bool rounds_at_random(const OptimizerState& state) {
  return state.exp_avg_sq.defined() && (state.rounds_weights() || state.exp_avg_sq.dtype() == DType::kBFloat16);
}

}  // namespace megatron
