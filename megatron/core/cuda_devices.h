// Which GPUs this machine has.
#pragma once

#include <cstdint>
#include <optional>
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
/// GPUs that answer, by number; where there is none, why.
struct CudaDevices {
  std::vector<CudaDeviceFacts> devices;
  int64_t free_bytes = 0;  // of the own one; 0 without one
  std::string problem;
};
/// @param own  GPU that this process is to use, which becomes the current one of the thread if it is there: to ask the
/// others for more than their properties would put a context on each. None: no context is made.
CudaDevices find_cuda_devices(std::optional<int> own = 0);

/// Bytes of the current GPU that nobody has taken. In builds with CUDA.
int64_t free_cuda_bytes();

/// Bytes of the current GPU that all processes have taken, as nvidia-smi shows them. In builds with CUDA.
int64_t used_cuda_bytes();

}  // namespace megatron
