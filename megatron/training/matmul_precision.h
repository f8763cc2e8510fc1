// How precisely fp32 matrices are multiplied.
#pragma once

#include "megatron/core/device.h"
#include "megatron/training/config/training_config.h"

namespace megatron {

/// --float32-matmul-precision, from now on. @param device a GPU
void set_matmul_precision(Device& device, const PrecisionConfig& precision);

}  // namespace megatron
