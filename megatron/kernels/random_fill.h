// Initial values of weights.
// The overload for CUDA gives the same numbers bit for bit, and throws NotSupported for fp64.
#pragma once

#include "megatron/core/cuda_stream.h"
#include "megatron/core/random.h"
#include "megatron/core/view.h"

namespace megatron::kernels {

/// y[i] = std * normal(key, g) where g is the number of element i in the whole tensor:
/// global_offset + sum over dimensions of index * global_stride. So a shard has the values of the whole tensor.
struct NormalFillArgs {
  View y;  // any strides; the last dimension is contiguous in y and in the whole tensor
  RandomKey key;
  Shape global_strides;
  int64_t global_offset = 0;
  double std = 1;
};
void fill_normal(const CpuStream& stream, const NormalFillArgs& args);
void fill_normal(const CudaStream& stream, const NormalFillArgs& args);

}  // namespace megatron::kernels
