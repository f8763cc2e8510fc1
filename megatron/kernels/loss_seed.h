// The gradient of a mean loss over tokens, whose number over all ranks is in device memory.
// The overload for CUDA gives the same bits.
#pragma once

#include <cstdint>

#include "megatron/core/cuda_stream.h"
#include "megatron/core/step_state.h"

namespace megatron::kernels {

/// state->loss_seed = loss_scale / max(*num_tokens, 1)
struct LossSeedArgs {
  const int64_t* num_tokens = nullptr;
  double loss_scale = 1;
  StepState* state = nullptr;
};
void loss_seed(const CpuStream& stream, const LossSeedArgs& args);
void loss_seed(const CudaStream& stream, const LossSeedArgs& args);

}  // namespace megatron::kernels
