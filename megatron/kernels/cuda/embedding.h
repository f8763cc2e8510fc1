// Embeddings on CUDA.
#pragma once

#include "megatron/core/cuda_stream.h"
#include "megatron/kernels/embedding.h"

namespace megatron::kernels {

/// As for CpuStream; fp32, bf16 or fp16. Ids and positions are in device memory. @throw NotSupported for fp64.
void embedding_forward(const CudaStream& stream, const EmbeddingForwardArgs& args);
void embedding_backward(const CudaStream& stream, const EmbeddingBackwardArgs& args);

}  // namespace megatron::kernels
