#include "megatron/core/cuda_device.h"

#include "megatron/base/error.h"
#include "megatron/core/cuda/cuda_copy_queue.h"
#include "megatron/core/cuda/cuda_memory.h"
#include "megatron/core/cuda/cuda_tracer.h"

namespace megatron {
namespace {

class RealCudaDevice final : public CudaDevice {
 public:
  explicit RealCudaDevice(int number) : number_(number) {
    int count = 0;
    const cudaError_t status = cudaGetDeviceCount(&count);
    require<DeviceError>(status == cudaSuccess && number >= 0 && number < count,
                         "[Device] GPU {}: {} answer ({}). See nvidia-smi, or choose the cpu.", number, count,
                         cudaGetErrorString(status));
    check_cuda(cudaSetDevice(number), "cudaSetDevice");
    // Does not wait for the default stream, on which nothing of this library runs.
    check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
  }
  ~RealCudaDevice() override { cudaStreamDestroy(stream_); }

  CUstream_st* stream() const override { return stream_; }
  void synchronize() override { check_cuda(cudaStreamSynchronize(stream_), "the work on the GPU"); }
  std::unique_ptr<ArenaMemory> make_memory() override { return std::make_unique<CudaMemory>(number_, stream_); }
  std::unique_ptr<ArenaMemory> make_pinned_memory() override {
    return std::make_unique<CudaPinnedMemory>(stream_, locked_);
  }
  std::unique_ptr<CopyQueue> make_copy_queue() override { return std::make_unique<CudaCopyQueue>(stream_, locked_); }
  std::unique_ptr<DeviceTracer> make_tracer() override { return std::make_unique<CudaTracer>(stream_); }

 private:
  int number_;
  cudaStream_t stream_ = nullptr;
  LockedPieces locked_;
};

}  // namespace

std::unique_ptr<CudaDevice> open_cuda_device(int number) { return std::make_unique<RealCudaDevice>(number); }

}  // namespace megatron
