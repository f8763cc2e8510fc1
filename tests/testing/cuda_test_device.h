// Whether a test of CUDA can run here.
#pragma once

#include <string>

#include "megatron/base/error.h"
#include "megatron/core/cuda_device.h"

namespace megatron::testing {

/// Empty where GPU 0 answers.
inline std::string why_no_cuda() {
  try {
    open_cuda_device(0);
    return "";
  } catch (const DeviceError& error) {
    return error.what();
  }
}

}  // namespace megatron::testing
