#include "megatron/bench/state_bytes.h"

namespace megatron {

OptimizerDTypes::OptimizerDTypes(const StepShapes& z)
    : is_adam(z.optimizer.optimizer == OptimizerType::kAdam),
      form(main_params_of(z.model.params_dtype, z.optimizer)),
      main(steps_weights() ? z.model.params_dtype : DType::kFloat32) {
  const bool is_double = main == DType::kFloat64;
  first_moment = is_double ? main : dtype_of(z.optimizer.exp_avg_dtype);
  second_moment = is_double ? main : dtype_of(z.optimizer.exp_avg_sq_dtype);
}

StateBytes state_bytes_of(const StepShapes& z) {
  const OptimizerDTypes kept(z);
  StateBytes bytes{.weight = size_of(z.model.params_dtype), .gradient = size_of(z.gradient_dtype)};
  if (!kept.steps_weights()) bytes.main_param = kept.has_remainder() ? 2 : size_of(kept.main);
  bytes.moments = size_of(kept.first_moment) + (kept.is_adam ? size_of(kept.second_moment) : 0);
  return bytes;
}

}  // namespace megatron
