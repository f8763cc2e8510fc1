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

}  // namespace megatron
