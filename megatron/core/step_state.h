// Values that change from step to step reach kernels through device memory, so that a captured step stays true.
#pragma once

#include <cstdint>

namespace megatron {

/// One block in device memory, written at the start of a step and read by kernels. Fronts never read it.
struct StepState {
  int64_t step = 0;          // training iteration, from 0; part of every dropout counter
  double loss_seed = 1;      // gradient that enters the loss: loss scale / number of valid tokens of the global batch
  double inverse_scale = 1;  // 1 / loss scale (fp16)
  double clip_factor = 1;    // min(1, clip / (norm + 1e-6)), written by the norm kernel
  double learning_rate = 0;  // of the default group
  double weight_decay = 0;   // of the default group, before the group's multiplier
  double bias_correction1 = 1;  // 1 - beta1^t
  double bias_correction2 = 1;  // 1 - beta2^t
  int32_t found_inf = 0;        // a gradient is not finite: the optimizer leaves everything as it is
  int32_t overflow = 0;         // a bounded extent was too small; read with the loss
};

}  // namespace megatron
