// The CUDA side of a kernel's first argument. The only CUDA type that kernel headers name.
#pragma once

struct CUstream_st;  // what cudaStream_t points to

namespace megatron {

/// Kernels are put on `stream` and return at once. @see CpuStream
struct CudaStream {
  CUstream_st* stream = nullptr;
};

}  // namespace megatron
