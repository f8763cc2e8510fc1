// Kernels with more shared memory than the default limit of 48 KiB.
#pragma once

#include <cuda_runtime.h>

#include "megatron/base/error.h"

namespace megatron::kernels {

/// Allows a kernel to use `bytes` of shared memory.
template <class Kernel>
void allow_shared_memory(const char* name, Kernel* kernel, int64_t bytes) {
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
  require<DeviceError>(error == cudaSuccess, "[{}] {} bytes of shared memory: {}.", name, bytes,
                       cudaGetErrorString(error));
}

}  // namespace megatron::kernels
