// Bytes of training state per parameter: the precision class of a run.
#pragma once

#include <cstdint>

#include "megatron/bench/step_shapes.h"
#include "megatron/optimizer/main_params.h"

namespace megatron {

/// The optimizer's state of a parameter besides its weight and gradient.
struct OptimizerDTypes {
  explicit OptimizerDTypes(const StepShapes& shapes);
  bool steps_weights() const { return form == MainParams::kWeights; }
  bool has_remainder() const { return form == MainParams::kRemainder; }
  bool is_adam;
  MainParams form;
  DType main, first_moment, second_moment;
};

/// Bytes a parameter, before sharding. An fp32 copy of 16-bit weights takes 4, the remainder of one takes 2.
struct StateBytes {
  int64_t weight = 0, gradient = 0, main_param = 0, moments = 0;
  int64_t sum() const { return weight + gradient + main_param + moments; }
};
StateBytes state_bytes_of(const StepShapes& shapes);

}  // namespace megatron
