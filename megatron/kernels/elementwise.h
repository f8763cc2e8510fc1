// Copies, casts and sums of whole tensors. Any strides; operands of one call have the same shape and may have different
// floating dtypes (fp64 only with fp64, except for `copy`). Results are computed in fp32 (fp64 for fp64) and rounded
// once. An output may be one of the inputs; other overlaps are not allowed.
// The overloads for CUDA throw NotSupported for conversions from and to fp64; copies of one dtype take any.
#pragma once

#include "megatron/core/cuda_stream.h"
#include "megatron/core/view.h"

namespace megatron::kernels {

/// y = x, converted to the dtype of y. Also fp32 <-> fp64, and integers of the same dtype.
struct CopyArgs {
  ConstView x;
  View y;
};
void copy(const CpuStream& stream, const CopyArgs& args);
void copy(const CudaStream& stream, const CopyArgs& args);

/// y = value. Also integer dtypes.
struct FillArgs {
  View y;
  double value = 0;
};
void fill(const CpuStream& stream, const FillArgs& args);
void fill(const CudaStream& stream, const FillArgs& args);

/// y = a + b
struct AddArgs {
  ConstView a, b;
  View y;
};
void add(const CpuStream& stream, const AddArgs& args);
void add(const CudaStream& stream, const AddArgs& args);

/// y = factor * x
struct ScaleArgs {
  ConstView x;
  View y;
  double factor = 1;
  const double* device_factor = nullptr;  // in device memory, such as StepState::clip_factor; multiplies `factor`
};
void scale(const CpuStream& stream, const ScaleArgs& args);
void scale(const CudaStream& stream, const ScaleArgs& args);

/// y += factor * x, such as an fp32 main gradient += a bf16 gradient.
struct AccumulateArgs {
  ConstView x;
  View y;
  double factor = 1;
};
void accumulate(const CpuStream& stream, const AccumulateArgs& args);
void accumulate(const CudaStream& stream, const AccumulateArgs& args);

}  // namespace megatron::kernels
