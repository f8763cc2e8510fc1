#include "megatron/kernels/cuda/this_gpu.h"

#include <cuda_runtime_api.h>

#include "megatron/base/error.h"

namespace megatron::kernels {
namespace {

/// Compiled for the same architectures as all other kernels.
__global__ void any_kernel() {}

}  // namespace

bool has_code_for_this_gpu() {
  cudaFuncAttributes attributes{};
  const bool has_code = cudaFuncGetAttributes(&attributes, any_kernel) == cudaSuccess;
  cudaGetLastError();  // so that a later call does not report it
  return has_code;
}

int64_t block_shared_bytes() {
  int device = 0, bytes = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  require<DeviceError>(error == cudaSuccess, "[CUDA] the shared memory of a block cannot be queried: {}.",
                       cudaGetErrorString(error));
  return bytes;
}

}  // namespace megatron::kernels
