// A GPU as core sees it, without CUDA's headers. core/cuda/ has the implementation, which builds without CUDA leave
// out.
#pragma once

#include <memory>

#include "megatron/core/arena_memory.h"
#include "megatron/core/copy_queue.h"
#include "megatron/core/cuda_stream.h"
#include "megatron/core/device_tracer.h"

namespace megatron {

class CudaDevice {
 public:
  CudaDevice() = default;
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;
  virtual ~CudaDevice() = default;

  /// The compute stream.
  virtual CUstream_st* stream() const = 0;
  virtual void synchronize() = 0;
  /// Memory of the GPU; refers to this device.
  virtual std::unique_ptr<ArenaMemory> make_memory() = 0;
  /// Page-locked memory of the host, which the GPU reads and writes too.
  virtual std::unique_ptr<ArenaMemory> make_pinned_memory() = 0;
  /// Beside the compute stream; refers to this device.
  virtual std::unique_ptr<CopyQueue> make_copy_queue() = 0;
  /// Makes a tracer of the compute stream; it refers to this device.
  virtual std::unique_ptr<DeviceTracer> make_tracer() = 0;
};

/// GPU `number`, which becomes the current one of the calling thread.
/// @throw DeviceError if there is none, or if this build has no CUDA.
std::unique_ptr<CudaDevice> open_cuda_device(int number);

}  // namespace megatron
