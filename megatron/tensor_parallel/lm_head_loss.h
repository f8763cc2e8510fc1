// The projection to the vocabulary and the cross entropy, in one op over chunks of tokens.
#pragma once

#include <cstdint>
#include <limits>

#include "megatron/autograd/tape.h"
#include "megatron/comm/process_group.h"

namespace megatron {

struct LmHeadLossOptions {
  int64_t vocab_size = 0;  // true size; further rows of the weight are padding and take no part
  double label_smoothing = 0;
  double soft_cap = 0;  // above 0: logits are soft_cap * tanh(hidden w^T / soft_cap)
  /// The most logits of a rank in one matmul. Matmuls of more elements than 32 bits count are left to others.
  int64_t most_chunk_logits = std::numeric_limits<int32_t>::max();
  ProcessGroup group = {};         // cuts the vocabulary
  bool sequence_parallel = false;  // hidden is this rank's positions
};

/// lm_head_loss cuts `positions` of `num_columns` sequences, for `num_rows` words of a rank, into as few chunks as
/// there can be, of one length but for the last.
struct LmHeadChunks {
  LmHeadChunks(int64_t positions, int64_t num_columns, int64_t num_rows,
               int64_t most_logits = LmHeadLossOptions{}.most_chunk_logits);
  int64_t length;  // positions of a chunk
  int64_t num;
};

/// loss[s, b] = -log softmax(hidden w^T)[label], in fp32 (fp64 for fp64), the same bits on every rank of the group.
/// With a soft cap, backward needs memory for the logits of one chunk more. Label smoothing as commonly defined, over
/// the whole true vocabulary (Megatron Core smooths over a rank's part, so that its ranks disagree). Kept for backward:
/// hidden, the softmax statistics and the logits, which backward overwrites with their gradient.
///
/// Several ranks (Shoeybi et al. 2019, arXiv:1909.08053, section 3) multiply with their rows of the vocabulary and
/// combine, in rank order: the maximum, then in one message the sum of exp, the logit of the label and, for smoothing,
/// the sum of logits; for all tokens at once. The gradient of hidden is all-reduced while W runs. Under sequence
/// parallelism hidden is gathered before, its gradient reduce-scattered.
/// @param hidden  [s, b, h], floating; under sequence parallelism [s/tp, b, h].
/// @param weight  [v/tp, h].
/// @param labels  [s, b] int32 or int64, any strides; kept.
Tensor lm_head_loss(Context& ctx, const Tensor& hidden, Parameter& weight, const Tensor& labels,
                    const LmHeadLossOptions& options);

}  // namespace megatron
