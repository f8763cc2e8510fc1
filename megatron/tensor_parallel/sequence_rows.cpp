#include "megatron/tensor_parallel/sequence_rows.h"

namespace megatron {

SequenceLayoutView sequence_rows(const SequenceLayout& layout, const ProcessGroup& group, bool sequence_parallel) {
  SequenceLayoutView view = layout.view();
  view.spans = nullptr;
  view.num_spans = 0;
  if (!sequence_parallel || group.size() == 1) return view;
  require<ShapeError>(
      view.s % group.size() == 0,
      "[sequence parallel] {} positions are not divisible by {} tensor-parallel ranks. Choose a --seq-length that is, "
      "or leave out --sequence-parallel.",
      view.s, group.size());
  view.s /= group.size();
  const int64_t begin = group.rank() * view.s;
  if (view.positions) view.positions += begin * view.b;
  view.first_position += begin;
  view.rows.first_position += begin;
  return view;
}

}  // namespace megatron
