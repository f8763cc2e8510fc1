// All-to-all between context-parallel ranks that share the heads of their tokens. Source: Jacobs et al. 2023
// (arXiv:2309.14509); Megatron Core's cp_comm_type a2a.
#pragma once

#include "megatron/autograd/tape.h"
#include "megatron/comm/process_group.h"
#include "megatron/core/context_layouts.h"

namespace megatron {

/// Gathers all ranks' tokens of this rank's heads, in the order of their positions: the rows of a coarser ContextCut,
/// and of all ranks whole sequences. Ranks get equal ranges of heads. If there are fewer heads than ranks, neighbours
/// get the same head, and its gradient is the sum of theirs.
/// @param x      [rows, b, n, d], any strides but the last. The ranks divide n, or n divides the ranks.
/// @param order  of the rows of the group's ranks.
/// @return       [rows * size, b, max(1, n / size), d]
Tensor scatter_heads(Context& ctx, const Tensor& x, const ProcessGroup& group, const RowOrder& order);

/// The inverse, with the ranks' heads one after the other: [rows * size, b, n / size, d] to [rows, b, n, d].
Tensor gather_heads(Context& ctx, const Tensor& x, const ProcessGroup& group, const RowOrder& order);

}  // namespace megatron
