// A linear layer that owns the communication of its tensor parallelism, so that W hides it.
#pragma once

#include "megatron/autograd/tape.h"
#include "megatron/tensor_parallel/comm_overlap.h"

namespace megatron {

/// The tensor-parallel ranks meet here (Shoeybi et al. 2019, arXiv:1909.08053, section 3: f and g; Korthikanti et al.
/// 2022, arXiv:2205.05198, section 4.2.2: the sequence-parallel pair). Forward / backward:
enum class LinearCommunication {
  kNone,           // - / -
  kCopyInput,      // column cut: - / all-reduce of dx
  kGatherInput,    // column cut, sequence parallel: all-gather of x / reduce-scatter of dx
  kReduceOutput,   // row cut: all-reduce of y / -
  kScatterOutput,  // row cut, sequence parallel: reduce-scatter of y / all-gather of dy
};

struct LinearCommunicationOptions {
  LinearCommunication kind = LinearCommunication::kNone;
  TensorCommOverlap overlap = {};  // of the sequence-parallel kinds
};

/// y = x W^T + bias with communication over `group`; with one rank, linear().
/// Backward: dx is computed first, its collective runs while W is computed (parallelism by one node, not by two). What
/// `overlap` cuts are products of rows; W is one product of all rows, in rank order.
/// @param x     [s, b, i]; under kGatherInput [s/tp, b, i]. Saved as it comes: what is gathered is gathered again.
/// @param bias  [o] of a column cut; null for a row cut, whose bias comes after the reduction.
Tensor linear_with_communication(Context& ctx, const Tensor& x, Parameter& weight, Parameter* bias,
                                 const ProcessGroup& group, const LinearCommunicationOptions& options);

}  // namespace megatron
