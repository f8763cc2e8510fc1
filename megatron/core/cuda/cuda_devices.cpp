#include "megatron/core/cuda_devices.h"

#include <cuda_runtime_api.h>
#include <fmt/core.h>

#include <csignal>

#include "megatron/core/cuda/driver.h"

namespace megatron {
namespace {

/// Threads that are started in its lifetime take no signals: one of the driver that took SIGTERM would end the process
/// without a word, though a SignalWatch that begins later waits for it.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace

CudaDevices find_cuda_devices(std::optional<int> own) {
  const SignalsBlocked no_signals;
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
  if (status == cudaSuccess && own && *own < count) status = cudaSetDevice(*own);
  if (status == cudaSuccess && own && *own < count) status = cudaMemGetInfo(&free, &total);
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

int64_t used_cuda_bytes() {
  size_t free = 0, total = 0;
  check_cuda(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  return static_cast<int64_t>(total - free);
}

}  // namespace megatron
