// Matmuls on CUDA, by cuBLASLt.
#pragma once

#include "megatron/core/cuda_stream.h"
#include "megatron/kernels/matmul.h"

namespace megatron::kernels {

/// As for CpuStream; fp32 (TF32 only after use_tf32()), bf16 or fp16. The bias has the dtype of c. The library's choice
/// for a shape is kept in stream.libraries. Two runs give equal bits. If c is half precision the library may round
/// the result before it adds the bias and c. @throw NotSupported for fp64, bounded rows and other biases.
void matmul(const CudaStream& stream, const MatmulArgs& args);
int64_t matmul_workspace_bytes(const CudaStream& stream, const MatmulArgs& args);
/// From now on, fp32 matmuls of this stream round their operands to the 10 bits of mantissa that tensor cores multiply
/// (TF32); sums stay fp32. Algorithms chosen for fp32 matmuls are dropped.
void use_tf32(const CudaStream& stream);

}  // namespace megatron::kernels
