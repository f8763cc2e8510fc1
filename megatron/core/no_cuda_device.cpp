// Stands for the files of core/cuda/ in builds without CUDA.
#include "megatron/base/error.h"
#include "megatron/core/cuda_device.h"
#include "megatron/core/cuda_devices.h"

namespace megatron {

CudaDevices find_cuda_devices(std::optional<int>) {
  return {.devices = {}, .problem = "this build has no CUDA kernels"};
}

std::unique_ptr<CudaDevice> open_cuda_device(int number) {
  throw DeviceError(fmt::format("[Device] GPU {}: this build has no CUDA. Build with -DMEGATRON_CUDA=ON.", number));
}

}  // namespace megatron
