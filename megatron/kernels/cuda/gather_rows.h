// Moving rows by index lists on CUDA.
#pragma once

#include "megatron/core/cuda_stream.h"
#include "megatron/kernels/gather_rows.h"

namespace megatron::kernels {

/// As for CpuStream; fp32, bf16 or fp16. Index lists and state are in device memory. @throw NotSupported for fp64.
void gather_rows(const CudaStream& stream, const GatherRowsArgs& args);
void scatter_add_rows(const CudaStream& stream, const ScatterAddRowsArgs& args);
void combine_rows_forward(const CudaStream& stream, const CombineRowsForwardArgs& args);
void combine_rows_backward(const CudaStream& stream, const CombineRowsBackwardArgs& args);

}  // namespace megatron::kernels
