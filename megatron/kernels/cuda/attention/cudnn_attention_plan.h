// The cases of attention that cuDNN runs, their pieces and memory: pure functions of shapes, dtypes, strides and
// options, equal on a machine without a GPU or cuDNN. Rejected cases run on the built-in kernels.
#pragma once

#include <string_view>

#include "megatron/kernels/attention.h"

namespace megatron::kernels {

/// Why cuDNN (9.18 or later, on Hopper) is not used; empty: it is. Undefined data counts as aligned.
std::string_view cudnn_refusal(const AttentionForwardArgs& args);
std::string_view cudnn_refusal(const AttentionBackwardArgs& args);

/// Largest piece of a deterministic backward, which stores the gradients of the scores: heads are taken in pieces that
/// fit, and a head that does not fit alone is rejected.
inline constexpr int64_t kDeterministicScoreBytes = int64_t{1} << 30;

/// Key heads, with the query heads that use them, and columns of one call of cuDNN.
struct CudnnPiece {
  int64_t num_groups = 0, num_columns = 0;
};
CudnnPiece cudnn_piece(const AttentionForwardArgs& args);
CudnnPiece cudnn_piece(const AttentionBackwardArgs& args);

/// Says whether cuDNN gets the rows of each span from tables in device memory: all forms but kUniform.
bool has_cudnn_tables(const SequenceLayoutView& layout);

/// Number of sequences of a plan with tables: a power of two, so that few plans serve all batches. Sequences beyond the
/// spans are empty.
int64_t cudnn_num_sequences(const SequenceLayoutView& layout);

/// Our tables before cuDNN's own workspace, in bytes: begins and ends of the queries and of the keys of sequences, and
/// the log-sum-exp in cuDNN's order.
struct CudnnTables {
  int64_t offset_bytes = 0;      // of one table of num_sequences + 1 offsets
  int64_t length_bytes = 0;      // of one of the two tables of num_sequences lengths: of queries and of keys
  int64_t statistics_bytes = 0;  // [s, b, n] fp32
  int64_t total = 0;
};
inline constexpr int kCudnnOffsetTables = 9;  // q, k, v, o, their gradients, log-sum-exp
CudnnTables cudnn_tables(const ConstView& q, const SequenceLayoutView& layout);

/// Bytes of the two seeds of cuDNN's dropout mask, after our tables: 0 without dropout.
int64_t cudnn_seed_bytes(const AttentionOptions& options);

/// An upper bound of the workspace of cuDNN's plan, with our tables; plans that need more are not used. For cases that
/// are not rejected.
int64_t cudnn_workspace_bytes(const AttentionForwardArgs& args);
int64_t cudnn_workspace_bytes(const AttentionBackwardArgs& args);

}  // namespace megatron::kernels
