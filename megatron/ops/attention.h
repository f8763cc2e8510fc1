// Scaled dot-product attention with its gradient.
#pragma once

#include <string_view>

#include "megatron/autograd/tape.h"
#include "megatron/core/sequence_layout.h"
#include "megatron/kernels/attention.h"

namespace megatron {

struct AttentionOptions {
  double scale = 1;
  double soft_cap = 0;  // above 0: scores are bent towards it, as in kernels::AttentionOptions
  bool is_causal = true;
  int64_t window_left = -1, window_right = -1;  // visible keys before and after a query's position; -1: no limit
  kernels::AttentionSoftmax softmax = kernels::AttentionSoftmax::kVanilla;
  double dropout = 0;
  std::string_view path;  // names the dropout draw
  /// cuDNN draws the mask: it then depends on tensor parallelism and micro-batches. GPU only.
  bool is_dropout_of_cudnn = false;
  int64_t first_head = 0;         // global number of query head 0: the mask does not depend on tensor parallelism
  int64_t first_sink = 0;         // element of the sink that query head 0 has
  bool is_deterministic = false;  // gradients of two runs are equal to the bit, on CUDA too
  /// Query, key and value have the same shape, and their gradients are the views of one tensor (qkv_views).
  bool packs_gradients = false;
  /// [heads of the whole layer] fp64: kernels::AttentionForwardArgs::max_logits. Undefined: not wanted.
  Tensor max_logits = {};

  /// Those of `num_heads` query heads from first_head on.
  Tensor own_max_logits(int64_t num_heads) const;
};

/// The options of the kernels in the current step of `ctx`.
kernels::AttentionOptions kernel_options(const Context& ctx, const AttentionOptions& options);

/// softmax(scale q k^T) v within each span of the layout, in tiles: no s x s matrix is stored (Dao 2023,
/// arXiv:2307.08691). Statistics in fp32 (fp64 for fp64). Rows outside of all spans give zero.
/// @param query       [s, b, n, d], saved.
/// @param key, value  [s_k, b, g, d], n a multiple of g; saved.
/// @param sink        at least [first_sink + n], for kLearnable; else null. B computes its gradient too.
/// @return            [s, b, n * d]; saved, with the log of the denominators [n, b, s].
Tensor attention(Context& ctx, const Tensor& query, const Tensor& key, const Tensor& value,
                 const SequenceLayout& layout, const AttentionOptions& options, Parameter* sink);

}  // namespace megatron
