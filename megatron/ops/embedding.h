// Token and position embeddings, with gradients straight into main_grad.
#pragma once

#include "megatron/autograd/tape.h"
#include "megatron/core/sequence_layout.h"
#include "megatron/kernels/embedding.h"

namespace megatron {

/// y[s, b] = word[ids[s, b] - first_id] (+ position[position of the token]); ids outside of the table give zero, so
/// that vocabulary-parallel ranks add up.
/// @param ids       [s, b] int32 or int64, any strides; read and kept.
/// @param word      [v/tp, h]; @param position [max positions, h], may be null.
/// @return          [s, b, h], dtype of word. Both gradients belong to W.
Tensor embedding(Context& ctx, const Tensor& ids, Parameter& word, int64_t first_id, Parameter* position,
                 const SequenceLayout& layout);

/// Checks the operands of a token lookup. @param h  elements of a row of the table.
/// @throw ShapeError unless the ids are those of the layout and `position`, if any, has a row for each position
void check_embedding(const Tensor& ids, int64_t h, const Parameter* position, const SequenceLayout& layout);
/// Only on the CPU, which can read ids without a wait; on a GPU a lookup of an id outside of the table gives zeros.
/// @throw DataError naming an id that is not in [0, num_ids)
void check_ids_on_cpu(const Context& ctx, const Tensor& ids, int64_t num_ids);

// The two halves of a table, for nodes that put communication between them (tensor_parallel).

/// y = table[index], or y += with `accumulate`.
void embedding_forward(const Context& ctx, const kernels::EmbeddingIndex& index, Parameter& table, Tensor& y,
                       bool accumulate);
/// main_grad of `table` (+)= the indexed rows of dy [s, b, h]; a null or frozen table is left out.
void embedding_wgrad(const Context& ctx, const Tensor& dy, const kernels::EmbeddingIndex& index, Parameter* table);

}  // namespace megatron
