// Sums that gradients need at the end of a step beside the data-parallel one. Megatron Core:
// core/distributed/finalize_model_grads.py.
#pragma once

#include <span>

#include "megatron/autograd/parameter.h"
#include "megatron/comm/process_group_collection.h"

namespace megatron {

/// Adds up over the tensor-parallel ranks the gradients of which each rank has a part: parameters with
/// GradReduction::kSumOverTensor (norms and biases that saw some of the rows or heads), and replicated sections of a
/// cut (keys and values with fewer groups than ranks), over the ranks that share a group. One all-reduce a gradient
/// dtype, through a flat buffer; none where nothing is to be summed. Sums in rank order, so that the ranks stay equal
/// bit for bit. Before or after the data-parallel sum, for sums commute; after a reduce-scatter only the own part of
/// the gradient means something, which the ranks of `tp` share as their buffers are alike. All ranks of `tp` call it
/// with the same parameters, each with its shard. Frozen parameters are left out.
void all_reduce_tensor_parallel_grads(const Context& ctx, std::span<Parameter* const> parameters,
                                      const ProcessGroup& tp);

/// Adds up the gradients of the copies that several pipeline ranks hold of one tensor (TieGroup). All holders call it.
/// Frozen parameters are left out.
void all_reduce_tied_grads(std::span<Parameter* const> parameters, const ProcessGroupCollection& groups);

}  // namespace megatron
