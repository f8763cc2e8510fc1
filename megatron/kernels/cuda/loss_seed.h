// The gradient that enters the loss, on CUDA.
#pragma once

#include "megatron/core/cuda_stream.h"
#include "megatron/kernels/loss_seed.h"

namespace megatron::kernels {

/// As for CpuStream, with the same bits.
void loss_seed(const CudaStream& stream, const LossSeedArgs& args);

}  // namespace megatron::kernels
