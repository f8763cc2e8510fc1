// The order of routed rows: by expert, and within an expert by token. Megatron Core: core/transformer/moe/moe_utils.py,
// permute. t tokens, e experts.
#pragma once

#include "megatron/core/cuda_stream.h"
#include "megatron/core/row_groups_view.h"
#include "megatron/core/view.h"

namespace megatron::kernels {

/// Row r of the permutation belongs to tokens[r]; a token has the rows slots[t, 0], slots[t, 1], ... by ascending
/// expert. The group of an expert is its rows.
struct SortByExpertArgs {
  ConstView map;  // [t, e] uint8
  View offsets;   // [e + 1] int32
  View count;     // [1] int32, the number of rows; optional
  View tokens;    // [capacity] int32; -1 past the last row
  View slots;     // [t, s] int32, s at least the largest number of experts of a token; -1 past the last row
};
void sort_by_expert(const CpuStream& stream, const SortByExpertArgs& args);
void sort_by_expert(const CudaStream& stream, const SortByExpertArgs& args);

/// row_probs[r] = probs[tokens[r], expert of r], 0 past the last row.
struct PermuteProbsForwardArgs {
  ConstView probs;   // [t, e] float32 or float64, contiguous
  ConstView tokens;  // [capacity]
  RowGroupsView groups;
  View row_probs;  // [capacity], dtype of probs
};
void permute_probs_forward(const CpuStream& stream, const PermuteProbsForwardArgs& args);
void permute_probs_forward(const CudaStream& stream, const PermuteProbsForwardArgs& args);

/// dprobs[tokens[r], expert of r] = drow_probs[r], 0 elsewhere.
struct PermuteProbsBackwardArgs {
  ConstView drow_probs;  // [capacity]
  ConstView tokens;      // [capacity]
  RowGroupsView groups;
  View dprobs;  // [t, e], dtype of drow_probs, contiguous
};
void permute_probs_backward(const CpuStream& stream, const PermuteProbsBackwardArgs& args);
void permute_probs_backward(const CudaStream& stream, const PermuteProbsBackwardArgs& args);

}  // namespace megatron::kernels
