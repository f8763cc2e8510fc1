// A CUDA kernel runs on one. The only CUDA type that headers outside of folders named cuda mention.
#pragma once

#include <memory>

#include "megatron/core/stream.h"

struct CUstream_st;  // what cudaStream_t points to

namespace megatron {

/// Says whether this build has the CUDA kernels (CMake option MEGATRON_CUDA). The only place that asks the build.
inline constexpr bool kHasCuda = MEGATRON_CUDA;

/// Kernels are put on `stream` and return at once. Pointers in arguments are to device memory, those to counts, states,
/// spans, positions and index lists too. @see CpuStream
struct CudaStream {
  CUstream_st* stream = nullptr;
  std::unique_ptr<LibraryHandles>* libraries = nullptr;  // slot that the kernels fill on first use
};

}  // namespace megatron
