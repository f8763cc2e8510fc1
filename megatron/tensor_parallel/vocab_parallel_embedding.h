// The word table, its rows cut over the tensor-parallel ranks. Megatron Core: core/tensor_parallel/layers.py.
#pragma once

#include <memory>
#include <string>

#include "megatron/autograd/module.h"
#include "megatron/comm/process_group.h"
#include "megatron/core/sequence_layout.h"

namespace megatron {

struct VocabParallelEmbeddingOptions {
  std::string name;        // path of the layer; the parameter is name.weight
  StoredName stored = {};  // beginning of its name in checkpoints; "weight" follows
  int64_t vocab_size = 0, padded_vocab_size = 0;
  int64_t hidden_size = 0;
  DType dtype = DType::kFloat32;
  double init_std = 0.02;
  TiedCopy tied = {};  // if the table is the output weight too, or another stage has a copy of it
  bool sequence_parallel = false;
};

/// A rank looks up the ids of its rows, all others give zero; the sum over the ranks is the embedding (Shoeybi et al.
/// 2019, arXiv:1909.08053, section 3). Forward: all-reduce, under sequence parallelism reduce-scatter to the rank's
/// positions. Backward: under sequence parallelism all-gather of dy, in W; else nothing.
class VocabParallelEmbedding : public Module {
 public:
  VocabParallelEmbedding(const Context& ctx, const VocabParallelEmbeddingOptions& options, const ProcessGroup& group);
  /// @param ids       [s, b] int32 or int64, any strides; read and kept.
  /// @param position  learned positions [max positions, h], whole on every rank, added after the sum; may be null. Its
  ///                  gradient is that of all rows on every rank, so it needs no sum over the ranks.
  /// @throw ShapeError if there are more positions than rows of `position`; on the CPU, DataError for an id that is not
  ///                  in the vocabulary. On a GPU such an id gives zeros: the data sets check their tokens on the host.
  /// @return          [s, b, h] ([s/tp, b, h] under sequence parallelism), dtype of the table.
  Tensor forward(Context& ctx, const Tensor& ids, Parameter* position, const SequenceLayout& layout) const;
  Parameter& weight() const { return *weight_; }

 private:
  ProcessGroup group_;
  bool sequence_parallel_;
  int64_t vocab_size_;
  std::unique_ptr<Parameter> weight_;
};

}  // namespace megatron
