// Attention by cuDNN, through the graphs of cudnn-frontend. Built where both are found (MEGATRON_CUDNN).
#pragma once

#include <string>

#include "megatron/core/cuda_stream.h"
#include "megatron/kernels/attention.h"

namespace megatron::kernels {

/// cuDNN's version, or why it cannot be used on this machine: it is loaded at first use, so that the program
/// starts without it.
struct CudnnState {
  bool is_usable = false;
  std::string text;
};
CudnnState cudnn_state();

/// Run cases without a cudnn_refusal(). The plan of a shape is made at its first call (half a second) and kept in
/// stream.libraries. False, with nothing launched, if the library is not usable or has no plan for the shape that fits
/// in cudnn_workspace_bytes(). The statistic is that of the built-in kernels, so that either may run the backward of
/// the other's forward.
bool cudnn_attention_forward(const CudaStream& stream, const AttentionForwardArgs& args);
bool cudnn_attention_backward(const CudaStream& stream, const AttentionBackwardArgs& args);

}  // namespace megatron::kernels
