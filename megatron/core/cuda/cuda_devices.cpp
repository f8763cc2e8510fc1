#include "megatron/core/cuda_devices.h"

#include <cuda_runtime_api.h>
#include <fmt/core.h>

#include "megatron/core/cuda/driver.h"

namespace megatron {

CudaDevices find_cuda_devices(int own) {
  CudaDevices found;
  int count = 0, driver = 0;
  cudaError_t status = cudaDriverGetVersion(&driver);
  if (status == cudaSuccess && driver == 0) found.problem = "there is no CUDA driver";
  if (status == cudaSuccess) status = cudaGetDeviceCount(&count);
  for (int number = 0; number < count && status == cudaSuccess; ++number) {
    cudaDeviceProp properties{};
    status = cudaGetDeviceProperties(&properties, number);
    found.devices.push_back({.name = properties.name,
                             .memory_bytes = static_cast<int64_t>(properties.totalGlobalMem),
                             .compute_capability = properties.major * 10 + properties.minor,
                             .cache_bytes = properties.l2CacheSize,
                             .pci_bus_id = fmt::format("{:04x}:{:02x}:{:02x}.0", properties.pciDomainID,
                                                       properties.pciBusID, properties.pciDeviceID),
                             .driver_version = driver});
  }
  size_t free = 0, total = 0;
  if (status == cudaSuccess && own < count) status = cudaSetDevice(own);
  if (status == cudaSuccess && own < count) status = cudaMemGetInfo(&free, &total);
  found.free_bytes = static_cast<int64_t>(free);
  if (status == cudaSuccess) return found;
  cudaGetLastError();  // so that a later call does not report it
  if (found.problem.empty()) found.problem = cudaGetErrorString(status);
  found.devices.clear();
  return found;
}

int64_t free_cuda_bytes() {
  size_t free = 0, total = 0;
  check_cuda(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  return static_cast<int64_t>(free);
}

void release_cuda_device() { cudaDeviceReset(); }

}  // namespace megatron
