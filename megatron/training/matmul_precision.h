// How precisely fp32 matrices are multiplied.
#pragma once

#include <string>

#include "megatron/core/cuda_devices.h"
#include "megatron/core/device.h"
#include "megatron/training/config/training_config.h"

namespace megatron {

/// Why a GPU has no products in TF32; empty if it has.
std::string tf32_obstacle_of(const CudaDeviceFacts& gpu);

/// --float32-matmul-precision, from now on. @param device a GPU
void set_matmul_precision(Device& device, const PrecisionConfig& precision);

}  // namespace megatron
