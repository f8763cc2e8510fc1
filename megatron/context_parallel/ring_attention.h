// Attention whose keys and values travel around a ring of ranks. Source: Liu et al. 2023 (arXiv:2310.01889); Megatron
// Core's cp_comm_type p2p.
#pragma once

#include "megatron/autograd/tape.h"
#include "megatron/comm/process_group.h"
#include "megatron/core/context_layouts.h"
#include "megatron/ops/attention.h"

namespace megatron {

/// Computes attention() of this rank's queries over the keys of all ranks. The keys of the next rank arrive while those
/// of the current one are used; log-sum-exp merges the parts. In backward the keys travel again, together with sums of
/// their gradients in fp32 (fp64 for fp64), which end at their owner. The order of sums is fixed: two runs give equal
/// bits. Causal, with the vanilla softmax and without a window.
/// @param query  [s / size, b, n, d], saved. @param key, value  [s / size, b, g, d], contiguous; saved.
/// @return       [s / size, b, n * d]; saved, with the log of the denominators.
Tensor ring_attention(Context& ctx, const Tensor& query, const Tensor& key, const Tensor& value,
                      const RingLayouts& layouts, const ProcessGroup& ring, const AttentionOptions& options);

/// Computes attention() in several calls that together see every pair of a query and a key once, merged as those of a
/// ring: kernels of libraries run calls whose sequences share no row. Causal, with the vanilla softmax.
/// @param query  [s, b, n, d], saved. @param key, value  [s_k, b, g, d], contiguous; saved.
/// @return       [s, b, n * d]; saved, with the log of the denominators.
Tensor attention_in_parts(Context& ctx, const Tensor& query, const Tensor& key, const Tensor& value,
                          const std::vector<SequenceLayout>& parts, const AttentionOptions& options);

}  // namespace megatron
