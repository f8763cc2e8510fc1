// Communication as ops of its own: conjugate pairs of forward and backward. Megatron Core:
// core/tensor_parallel/mappings.py. Linear layers own theirs (linear.h).
#pragma once

#include "megatron/autograd/tape.h"
#include "megatron/comm/process_group.h"

namespace megatron {

/// Forward: the last dimensions of all ranks side by side, in rank order. Backward: the own part of dy, which all ranks
/// hold alike.
/// @param x [s, b, n/tp], contiguous.  @return [s, b, n]; x itself with one rank.
Tensor gather_from_tensor_model_parallel_region(Context& ctx, const Tensor& x, const ProcessGroup& group);

/// Forward: this rank's part of the last dimension. Backward: the gradients of all ranks' parts side by side.
/// @param x [..., n], contiguous, alike on all ranks.  @return [..., n/tp]; x itself with one rank.
/// @throw ShapeError if the last dimension does not divide.
Tensor scatter_to_tensor_model_parallel_region(Context& ctx, const Tensor& x, const ProcessGroup& group);

/// Forward: x itself. Backward: the sum of dy over the ranks, each of which used x for its own part of the work.
/// @param x  contiguous, alike on all ranks.  @return the value of x.
Tensor copy_to_tensor_model_parallel_region(Context& ctx, const Tensor& x, const ProcessGroup& group);

/// Forward: the rows (dimension 0) of all ranks, one after the other. Backward: this rank's rows of the sum of dy over
/// the ranks, each of which used all rows for its own part of the work.
/// @param x [s/tp, ...], contiguous.  @return [s, ...]; x itself with one rank.
Tensor gather_from_sequence_parallel_region(Context& ctx, const Tensor& x, const ProcessGroup& group);

/// Forward: this rank's rows (dimension 0). Backward: the gradients of all ranks' rows, one after the other.
/// @param x [s, ...], contiguous, alike on all ranks.  @return [s/tp, ...]; x itself with one rank.
/// @throw ShapeError if the rows do not divide.
Tensor scatter_to_sequence_parallel_region(Context& ctx, const Tensor& x, const ProcessGroup& group);

}  // namespace megatron
