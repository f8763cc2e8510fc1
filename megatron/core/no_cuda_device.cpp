// Stands for core/cuda/cuda_device.cpp in builds without CUDA.
#include "megatron/base/error.h"
#include "megatron/core/cuda_device.h"

namespace megatron {

std::unique_ptr<CudaDevice> open_cuda_device(int number) {
  throw DeviceError(fmt::format("[Device] GPU {}: this build has no CUDA. Build with -DMEGATRON_CUDA=ON.", number));
}

}  // namespace megatron
