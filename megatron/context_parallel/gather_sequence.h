// Gathers the tokens of all context-parallel ranks in the order of their positions.
#pragma once

#include "megatron/autograd/tape.h"
#include "megatron/comm/process_group.h"
#include "megatron/core/context_layouts.h"

namespace megatron {

/// Gathers the rows of all ranks; the gradient is the sum of all ranks' gradients of this rank's rows.
/// @param x  [s / size, b, ...], the rows of `cut` on this rank, contiguous.
/// @return   [s, b, ...]
Tensor gather_sequence(Context& ctx, const Tensor& x, const ProcessGroup& group, const ContextCut& cut);

}  // namespace megatron
