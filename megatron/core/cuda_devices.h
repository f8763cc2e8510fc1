// Which GPUs this machine has.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace megatron {

struct CudaDeviceFacts {
  std::string name;  // "NVIDIA H100 80GB HBM3"
  int64_t memory_bytes = 0;
  int compute_capability = 0;  // 90 is 9.0
  int64_t cache_bytes = 0;     // L2
  std::string pci_bus_id;      // "0000:1b:00.0"
  int driver_version = 0;      // newest CUDA that the driver knows: 13000 is 13.0
};
/// GPUs that answer, by number; where there is none, why. Runs use the first one: to ask the others for more than their
/// properties would put a context on each.
struct CudaDevices {
  std::vector<CudaDeviceFacts> devices;
  int64_t free_bytes = 0;  // of the first
  std::string problem;
};
CudaDevices find_cuda_devices();

}  // namespace megatron
