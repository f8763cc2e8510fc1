// Rows of a table by index, and their gradient.
// The overloads for CUDA take fp32, bf16 and fp16, with ids and positions in device memory, and throw NotSupported for
// fp64.
#pragma once

#include "megatron/core/cuda_stream.h"
#include "megatron/core/sequence_layout_view.h"
#include "megatron/core/view.h"

namespace megatron::kernels {

/// The row of the table for each row of the output.
struct EmbeddingIndex {
  ConstView ids;  // int32 or int64, shape [s, b] or any without h, any strides; undefined: positions of `layout`
  SequenceLayoutView layout;  // read only if ids is undefined
  int64_t first_id = 0;       // id of row 0 of the table (vocabulary parallel). Ids outside of the table give zero.
};

/// y = table[ids], or y += with `accumulate` (learned positions, token types). Dtypes of table and y may differ (fp64
/// only together).
struct EmbeddingForwardArgs {
  EmbeddingIndex index;
  ConstView table;  // [v, h], the last dimension contiguous
  View y;           // [..., h], the last dimension contiguous
  bool accumulate = false;
};
void embedding_forward(const CpuStream& stream, const EmbeddingForwardArgs& args);
void embedding_forward(const CudaStream& stream, const EmbeddingForwardArgs& args);

/// dtable[id] = sum of the rows of dy with that id, in the order of the rows, in fp32 (fp64 for fp64), rounded once;
/// or += with `accumulate`. Without it, rows without an id become zero. Deterministic.
struct EmbeddingBackwardArgs {
  EmbeddingIndex index;
  ConstView dy;  // [..., h]
  View dtable;   // [v, h], any floating dtype
  bool accumulate = false;
  View workspace;  // uint8 [embedding_backward_workspace_bytes(rows)]
};
void embedding_backward(const CpuStream& stream, const EmbeddingBackwardArgs& args);
void embedding_backward(const CudaStream& stream, const EmbeddingBackwardArgs& args);

constexpr int64_t embedding_backward_workspace_bytes(int64_t num_rows) { return 16 * num_rows; }

}  // namespace megatron::kernels
