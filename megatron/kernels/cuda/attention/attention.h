// Scaled dot-product attention on CUDA: cuDNN where it can, our own kernels elsewhere.
#pragma once

#include <string>
#include <string_view>

#include "megatron/core/cuda_stream.h"
#include "megatron/kernels/attention.h"

namespace megatron::kernels {

/// As for CpuStream; fp32, bf16 or fp16, sums in fp32, d and dv up to 256. Spans, row lists and state are in device
/// memory. Two runs give equal bits, gradients of q without options.is_deterministic excepted.
/// cuDNN stores no probabilities but rounds them to the dtype of q before the second product.
/// @throw NotSupported for fp64 and larger heads.
void attention_forward(const CudaStream& stream, const AttentionForwardArgs& args);
void attention_backward(const CudaStream& stream, const AttentionBackwardArgs& args);

/// Whatever this build may choose for the shapes, so that a plan does not depend on the machine that makes it.
int64_t attention_forward_workspace_bytes(const CudaStream& stream, const AttentionForwardArgs& args);
int64_t attention_backward_workspace_bytes(const CudaStream& stream, const AttentionBackwardArgs& args);

/// Why our own kernels run these arguments, from shapes and the build alone; empty: cuDNN does, where it is usable.
std::string_view why_not_cudnn(const AttentionForwardArgs& args);
std::string_view why_not_cudnn(const AttentionBackwardArgs& args);

/// For people: "cuDNN 9.19.0", or why all attention runs on our own kernels. Loads cuDNN.
std::string attention_library();

/// For people, of the calls on `stream` so far: how many ran on our own kernels though cuDNN is there, and why. Empty
/// if none did.
std::string own_attention_text(const CudaStream& stream);

}  // namespace megatron::kernels
