// Scaled dot-product attention on CUDA: cuDNN if possible, else built-in kernels.
#pragma once

#include <string>
#include <string_view>

#include "megatron/core/cuda_stream.h"
#include "megatron/kernels/attention.h"

namespace megatron::kernels {

/// As for CpuStream; fp32, bf16 or fp16, sums in fp32, d and dv up to 256. Spans, row lists and state are in device
/// memory. Two runs give equal bits, except for gradients of q without options.is_deterministic.
/// cuDNN stores no probabilities but rounds them to the dtype of q before the second matmul.
/// @throw NotSupported for fp64 and larger heads.
void attention_forward(const CudaStream& stream, const AttentionForwardArgs& args);
void attention_backward(const CudaStream& stream, const AttentionBackwardArgs& args);

/// The maximum over all choices of this build for the shapes, so that a plan does not depend on the machine.
int64_t attention_forward_workspace_bytes(const CudaStream& stream, const AttentionForwardArgs& args);
int64_t attention_backward_workspace_bytes(const CudaStream& stream, const AttentionBackwardArgs& args);

/// The reason to run built-in kernels, from shapes and the build only; empty: cuDNN, if it is usable.
std::string_view why_not_cudnn(const AttentionForwardArgs& args);
std::string_view why_not_cudnn(const AttentionBackwardArgs& args);

/// For the log: "cuDNN 9.19.0", or the reason why all attention runs on built-in kernels. Loads cuDNN.
std::string attention_library();

/// For the log: the number of calls on `stream` so far that ran on built-in kernels although cuDNN is usable, and why.
/// Empty if there are none.
std::string own_attention_text(const CudaStream& stream);

}  // namespace megatron::kernels
