// The loss of a micro-batch from the losses of its tokens.
// The overloads for CUDA add in a fixed order of their own.
#pragma once

#include "megatron/core/cuda_stream.h"
#include "megatron/core/view.h"

namespace megatron::kernels {

/// sum[0] = weight[0] * sum over all t of mask[t] * loss[t], in fp64, in the order of the elements.
struct MaskedSumForwardArgs {
  ConstView loss, mask;  // [s, b] floating, any strides
  ConstView weight;      // [1] fp64; undefined: 1
  View sum;              // [1] fp64
};
void masked_sum_forward(const CpuStream& stream, const MaskedSumForwardArgs& args);
void masked_sum_forward(const CudaStream& stream, const MaskedSumForwardArgs& args);

/// d_loss[t] = d_sum[0] * weight[0] * mask[t].
struct MaskedSumBackwardArgs {
  ConstView mask, d_sum;
  ConstView weight;  // as in forward
  View d_loss;       // [s, b] floating
};
void masked_sum_backward(const CpuStream& stream, const MaskedSumBackwardArgs& args);
void masked_sum_backward(const CudaStream& stream, const MaskedSumBackwardArgs& args);

/// Weights that make the sum of masked losses a mean: mean[0] = 1 / max(sum of part, 1), and the weight of that mean
/// among the tokens of `mask`, share[0] = weight[0] * (sum of mask) * mean[0].
struct MeanLossWeightsArgs {
  ConstView mask;    // [s, b] floating, any strides: all tokens
  ConstView part;    // [s, b] floating, any strides: those of the mean
  ConstView weight;  // [1] fp64; undefined: 1
  View mean, share;  // [1] fp64
};
void mean_loss_weights(const CpuStream& stream, const MeanLossWeightsArgs& args);
void mean_loss_weights(const CudaStream& stream, const MeanLossWeightsArgs& args);

}  // namespace megatron::kernels
