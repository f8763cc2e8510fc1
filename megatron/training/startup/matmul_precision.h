// How a run multiplies matrices on its device.
#pragma once

#include <string>

#include "megatron/core/cuda_devices.h"
#include "megatron/core/device.h"
#include "megatron/kernels/cuda/matmul/matmul_choices.h"
#include "megatron/training/config/training_config.h"

namespace megatron {

/// Why a GPU has no products in TF32; empty if it has.
std::string tf32_obstacle_of(const CudaDeviceFacts& gpu);

/// Call it on the device of a run before the first matmul: sets --float32-matmul-precision, and the algorithms
/// that were chosen. Does nothing on a CPU. @throw NotSupported if the library cannot run one of the choices
void prepare_matmuls(Device& device, const PrecisionConfig& precision, const kernels::MatmulChoices& choices);

}  // namespace megatron
