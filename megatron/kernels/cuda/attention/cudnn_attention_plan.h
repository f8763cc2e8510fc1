// Which attention cuDNN runs, in which pieces, and with how much memory: pure functions of shapes, dtypes, strides and
// options, which a machine without a GPU or cuDNN answers alike. A refused case runs on our own kernels.
#pragma once

#include <string_view>

#include "megatron/kernels/attention.h"

namespace megatron::kernels {

/// Why cuDNN (9.18 or later, on Hopper) is not used; empty: it is. Undefined data counts as aligned.
std::string_view cudnn_refusal(const AttentionForwardArgs& args);
std::string_view cudnn_refusal(const AttentionBackwardArgs& args);

/// Largest piece of a deterministic backward, which stores the gradients of the scores: heads are taken in pieces that
/// fit, and a head that does not fit alone is refused.
inline constexpr int64_t kDeterministicScoreBytes = int64_t{1} << 30;

/// Key heads, with the query heads that use them, and columns that one call of cuDNN takes.
struct CudnnPiece {
  int64_t num_groups = 0, num_columns = 0;
};
CudnnPiece cudnn_piece(const AttentionForwardArgs& args);
CudnnPiece cudnn_piece(const AttentionBackwardArgs& args);

/// Sequences that a plan for packed spans is made for: a power of two, so that few plans serve all batches. Those
/// beyond the spans are empty.
int64_t cudnn_num_sequences(const SequenceLayoutView& layout);

/// Our tables in front of cuDNN's own workspace, in bytes: what sequences of packed spans begin and end with, and the
/// log-sum-exp in cuDNN's order.
struct CudnnTables {
  int64_t offset_bytes = 0;      // of one table of num_sequences + 1 offsets
  int64_t length_bytes = 0;      // of one table of num_sequences lengths
  int64_t statistics_bytes = 0;  // [s, b, n] fp32
  int64_t total = 0;
};
inline constexpr int kCudnnOffsetTables = 9;  // q, k, v, o, their gradients, log-sum-exp
CudnnTables cudnn_tables(const ConstView& q, const SequenceLayoutView& layout);

/// For the two numbers that cuDNN draws its dropout mask from, behind our tables: 0 without dropout.
int64_t cudnn_seed_bytes(const AttentionOptions& options);

/// An upper bound of what cuDNN's plan asks for, with our tables; plans that ask for more are not used. For cases that
/// are not refused.
int64_t cudnn_workspace_bytes(const AttentionForwardArgs& args);
int64_t cudnn_workspace_bytes(const AttentionBackwardArgs& args);

}  // namespace megatron::kernels
