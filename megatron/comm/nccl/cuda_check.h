// What the communication layer asks of the CUDA runtime.
#pragma once

#include <cuda_runtime_api.h>

#include "megatron/base/error.h"

namespace megatron {

/// @throw DeviceError
inline void check_cuda_call(cudaError_t status, const char* call) {
  require<DeviceError>(status == cudaSuccess, "[comm/nccl] {} failed: {}", call, cudaGetErrorString(status));
}

/// Whether only the host reads `data` without help. Null is nothing.
inline bool is_host_memory(const void* data) {
  if (!data) return false;
  cudaPointerAttributes attributes{};
  check_cuda_call(cudaPointerGetAttributes(&attributes, data), "cudaPointerGetAttributes");
  return attributes.type == cudaMemoryTypeUnregistered || attributes.type == cudaMemoryTypeHost;
}

}  // namespace megatron
