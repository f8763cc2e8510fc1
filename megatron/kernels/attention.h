// Scaled dot-product attention in tiles: no s x s matrix is stored.
#pragma once

#include "megatron/core/random.h"
#include "megatron/core/sequence_layout_view.h"
#include "megatron/core/step_state.h"
#include "megatron/core/stream.h"
#include "megatron/core/view.h"

namespace megatron::kernels {

/// Additional term of the softmax's denominator: none; exp(0); exp(sink of the head).
enum class AttentionSoftmax { kVanilla, kOffByOne, kLearnable };

/// Options of forward and backward. Scores are scale q k^T, and with a soft cap c above 0 c tanh(score / c), before the
/// mask and the softmax. A query at key index p of its span attends to keys
/// [p - window_left, p + window_right], with causal attention none after p.
/// Dropout: key j of the span is dropped for a query if
/// draw(dropout_key.at(first_head + head), state->step, layout.rows(row of the query), span.first_key + j) is below
/// dropout_threshold(dropout), else its probability is multiplied by 1 / (1 - dropout).
struct AttentionOptions {
  double scale = 1;
  double soft_cap = 0;  // 0: none
  bool is_causal = true;
  int64_t window_left = -1, window_right = -1;  // -1: no limit
  AttentionSoftmax softmax = AttentionSoftmax::kVanilla;
  double dropout = 0;  // rate in [0, 1); at 0 the fields below are not read
  RandomKey dropout_key;
  const StepState* state = nullptr;  // in device memory
  int64_t first_head = 0;            // global number of query head 0
  bool is_dropout_of_cudnn = false;  // cuDNN draws another mask in its own order; CUDA only
  bool is_deterministic = true;      // gradients of two runs are equal to the bit; CUDA is faster without
};

/// o = dropout(softmax(scale q k^T)) v within each span of the layout.
/// Source: Dao 2023 (arXiv:2307.08691). Query head i uses key head i / (n / g).
/// Dtypes: q, k, v and o alike, any floating; sums and softmax in fp32, fp64 for fp64. All but the last dimension may
/// have any strides. Rows outside of all spans, and queries without a visible key, give 0.
/// Results do not depend on the number of threads.
struct AttentionForwardArgs {
  ConstView q;     // [s, b, n, d]
  ConstView k;     // [s_k, b, g, d]; n is a multiple of g
  ConstView v;     // [s_k, b, g, dv]
  ConstView sink;  // [n], any floating dtype; for kLearnable
  SequenceLayoutView layout;
  AttentionOptions options;
  View o;    // [s, b, n, dv]
  View lse;  // [n, b, s] fp32 (fp64 for fp64), any strides: log of the denominator, -infinity where it is 0
  /// [n] fp64, at least 0, contiguous; optional: raised to the largest score of a query of the head and a key that it
  /// sees, after scale and soft cap. A sink is no key.
  View max_logits;
  View workspace;  // uint8 [attention_forward_workspace_bytes(stream, args)]
};
void attention_forward(const CpuStream& stream, const AttentionForwardArgs& args);

/// Gradients of q, k, v and sink; all are written, with 0 in rows outside of the queries and keys of spans. Key ranges
/// of spans may overlap. Parallel over columns times key heads.
struct AttentionBackwardArgs {
  ConstView q, k, v;  // as in forward
  ConstView sink;     // as in forward
  ConstView o, lse;   // results of forward
  ConstView grad_o;   // [s, b, n, dv]
  SequenceLayoutView layout;
  AttentionOptions options;
  View grad_q, grad_k, grad_v;  // shapes of q, k, v, any strides but the last
  View grad_sink;               // [n], any floating dtype; for kLearnable, optional
  View workspace;               // uint8 [attention_backward_workspace_bytes(stream, args)]
};
void attention_backward(const CpuStream& stream, const AttentionBackwardArgs& args);

/// Depends on shapes and dtypes only: the data of the views may be null.
int64_t attention_forward_workspace_bytes(const CpuStream& stream, const AttentionForwardArgs& args);
int64_t attention_backward_workspace_bytes(const CpuStream& stream, const AttentionBackwardArgs& args);

}  // namespace megatron::kernels
