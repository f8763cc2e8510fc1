// Grouped matrix products on Hopper's tensor cores.
#pragma once

#include "megatron/kernels/grouped_matmul.h"

namespace megatron::kernels {

/// Runs the product on the tensor cores of compute capability 9.0a, and returns true. Returns false if the GPU or the
/// build lacks them, or for operands that they do not take: dtypes other than bfloat16 and float16, rows that are not a
/// multiple of 16 bytes, addresses that are not.
bool grouped_matmul_sm90(const CudaStream& stream, const GroupedMatmulArgs& args);
bool grouped_wgrad_sm90(const CudaStream& stream, const GroupedWgradArgs& args);

}  // namespace megatron::kernels
