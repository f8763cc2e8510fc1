// Calls of the CUDA runtime for the communication layer.
#pragma once

#include <cuda_runtime_api.h>

#include "megatron/base/error.h"

namespace megatron {

/// @throw DeviceError
inline void check_cuda_call(cudaError_t status, const char* call) {
  require<DeviceError>(status == cudaSuccess, "[comm/nccl] {} failed: {}", call, cudaGetErrorString(status));
}

/// Says whether `data` is host memory that a GPU cannot read. False for null.
inline bool is_host_memory(const void* data) {
  if (!data) return false;
  cudaPointerAttributes attributes{};
  check_cuda_call(cudaPointerGetAttributes(&attributes, data), "cudaPointerGetAttributes");
  return attributes.type == cudaMemoryTypeUnregistered || attributes.type == cudaMemoryTypeHost;
}

}  // namespace megatron
