// Copies, casts and sums of whole tensors on CUDA.
#pragma once

#include "megatron/core/cuda_stream.h"
#include "megatron/kernels/elementwise.h"

namespace megatron::kernels {

/// Like the overload for CpuStream. @throw NotSupported for conversions from and to fp64 (copies of one dtype take
/// any).
void copy(const CudaStream& stream, const CopyArgs& args);
void fill(const CudaStream& stream, const FillArgs& args);
void add(const CudaStream& stream, const AddArgs& args);
void scale(const CudaStream& stream, const ScaleArgs& args);
void accumulate(const CudaStream& stream, const AccumulateArgs& args);

}  // namespace megatron::kernels
