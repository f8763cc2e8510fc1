// All-to-all between context-parallel ranks that share the heads of their tokens. Source: Jacobs et al. 2023
// (arXiv:2309.14509); Megatron Core's cp_comm_type a2a.
#pragma once

#include "megatron/autograd/tape.h"
#include "megatron/comm/process_group.h"

namespace megatron {

/// Gathers all ranks' tokens of this rank's heads. Each rank's rows are two equal chunks; the result has the first
/// chunks of all ranks in ascending and then the second ones in descending order of the ranks, so that neighbours of a
/// ContextCut give the rows of a coarser cut, and all ranks whole sequences. Ranks get equal ranges of heads. If there
/// are fewer heads than ranks, neighbours get the same head, and its gradient is the sum of theirs.
/// @param x  [rows, b, n, d], any strides but the last. The ranks divide n, or n divides the ranks.
/// @return   [rows * size, b, max(1, n / size), d]
Tensor scatter_heads(Context& ctx, const Tensor& x, const ProcessGroup& group);

/// The inverse, with the ranks' heads one after the other: [rows * size, b, n / size, d] to [rows, b, n, d].
Tensor gather_heads(Context& ctx, const Tensor& x, const ProcessGroup& group);

}  // namespace megatron
