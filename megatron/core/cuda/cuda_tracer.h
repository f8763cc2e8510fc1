// Marks on a CUDA stream as timed events, and ranges of NVTX.
#pragma once

#include <vector>

#include "megatron/core/cuda/driver.h"
#include "megatron/core/device_tracer.h"

namespace megatron {

/// Events are made as they are needed and used again after they were read.
class CudaTracer final : public DeviceTracer {
 public:
  explicit CudaTracer(cudaStream_t stream) : stream_(stream) {}
  ~CudaTracer() override;
  CudaTracer(const CudaTracer&) = delete;
  CudaTracer& operator=(const CudaTracer&) = delete;

  void mark() noexcept override;
  std::vector<int64_t> read_marks() override;
  void push_range(std::string_view name) override;
  void pop_range() noexcept override;

 private:
  cudaStream_t stream_;
  std::vector<cudaEvent_t> events_;  // the first num_marks_ are on the stream
  size_t num_marks_ = 0;
  cudaError_t failure_ = cudaSuccess;  // the first one of a mark
};

}  // namespace megatron
