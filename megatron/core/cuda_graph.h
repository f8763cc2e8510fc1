// Work of a GPU that is recorded once and put on its stream again by one call.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "megatron/core/cuda_stream.h"

namespace megatron {

/// Each launch runs the same kernels with the same arguments: what differs between launches lies in device memory, at
/// places that stay. The memory that the work takes and gives back while it is recorded is no longer its own
/// afterwards: launch it only while that memory is free again.
class CudaGraph {
 public:
  CudaGraph() = default;
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;
  virtual ~CudaGraph() = default;

  /// On the stream of the recording. Does not wait.
  virtual void launch() = 0;
  /// Kernels, copies and fills.
  virtual int64_t num_nodes() const = 0;
};

/// Records what `work` puts on the stream, and on others that follow it by events and are waited for in the end, and
/// runs none of it; only where CUDA is built. Inside of `work` the host neither waits for the device nor reads or
/// writes its memory. The same work must have run before: what a library loads, measures or allocates at its first call
/// cannot be recorded.
/// @throw DeviceError for what cannot be recorded; what `work` throws.
std::unique_ptr<CudaGraph> record_cuda_graph(const CudaStream& stream, const std::function<void()>& work);

}  // namespace megatron
