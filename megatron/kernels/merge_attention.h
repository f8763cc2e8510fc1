// Attention over keys in parts: the softmax over all of them from those over each part.
#pragma once

#include "megatron/core/cuda_stream.h"
#include "megatron/core/view.h"

namespace megatron::kernels {

/// Adds the attention over further keys to that over the keys so far, for each query:
///   lse' = log(exp(sum_lse) + exp(lse));  sum_o' = exp(sum_lse - lse') sum_o + exp(lse - lse') o
/// A query that sees no key of a part has lse = -infinity there. Begin with sum_o = 0 and sum_lse = -infinity.
/// Source: Dao 2023 (arXiv:2307.08691), section 3.1; Liu et al. 2023 (arXiv:2310.01889).
struct MergeAttentionArgs {
  ConstView o;    // [s, b, n, dv], any floating dtype and strides but the last
  ConstView lse;  // [n, b, s] fp32 (fp64 for fp64), contiguous
  View sum_o;     // [s, b, n, dv] dtype of lse
  View sum_lse;   // [n, b, s] as lse
};
void merge_attention(const CpuStream& stream, const MergeAttentionArgs& args);
void merge_attention(const CudaStream& stream, const MergeAttentionArgs& args);

}  // namespace megatron::kernels
