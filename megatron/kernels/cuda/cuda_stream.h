// The CUDA side of a kernel's first argument. The only CUDA type that kernel headers name.
#pragma once

#include <memory>

#include "megatron/core/stream.h"

struct CUstream_st;  // what cudaStream_t points to

namespace megatron {

/// Kernels are put on `stream` and return at once. Pointers in arguments are to device memory, those to counts, states,
/// spans, positions and index lists too. @see CpuStream
struct CudaStream {
  CUstream_st* stream = nullptr;
  std::unique_ptr<LibraryHandles>* libraries = nullptr;  // slot that the kernels fill on first use
};

}  // namespace megatron
