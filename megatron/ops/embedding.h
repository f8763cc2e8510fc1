// Token and position embeddings, with gradients straight into main_grad.
#pragma once

#include "megatron/autograd/tape.h"
#include "megatron/core/sequence_layout.h"

namespace megatron {

/// y[s, b] = word[ids[s, b] - first_id] (+ position[position of the row]); ids outside of the table give zero, so that
/// vocabulary-parallel ranks add up.
/// @param ids       [s, b] int32 or int64, any strides; read and kept.
/// @param word      [v/tp, h]; @param position [max positions, h], may be null.
/// @return          [s, b, h], dtype of word. Both gradients belong to W.
Tensor embedding(Context& ctx, const Tensor& ids, Parameter& word, int64_t first_id, Parameter* position,
                 const SequenceLayout& layout);

}  // namespace megatron
