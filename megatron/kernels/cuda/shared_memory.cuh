// Kernels that take more shared memory than the 48 KiB that every kernel may.
#pragma once

#include <cuda_runtime.h>

#include "megatron/base/error.h"

namespace megatron::kernels {

/// Lets a kernel have `bytes` of shared memory at the launch.
template <class Kernel>
void allow_shared_memory(const char* name, Kernel* kernel, int64_t bytes) {
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
  require<DeviceError>(error == cudaSuccess, "[{}] {} bytes of shared memory: {}.", name, bytes,
                       cudaGetErrorString(error));
}

}  // namespace megatron::kernels
