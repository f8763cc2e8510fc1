// The first stage of a GPT: token and position embeddings.
#pragma once

#include <memory>

#include "megatron/autograd/module.h"
#include "megatron/core/sequence_layout.h"
#include "megatron/tensor_parallel/vocab_parallel_embedding.h"
#include "megatron/transformer/module_context.h"

namespace megatron {

/// Megatron Core: core/models/common/embeddings/language_model_embedding.py.
class GptEmbedding : public Module {
 public:
  /// @param words  how the table of words is tied to copies of other pipeline ranks.
  GptEmbedding(const ModuleContext& context, const TiedCopy& words);
  /// @param tokens [s, b] int64 or int32, any strides.
  /// @return [s, b, h] ([s/tp, b, h] under sequence parallelism) after multiplier and dropout; fp32 with an fp32
  /// residual stream.
  Tensor forward(Context& ctx, const Tensor& tokens, const SequenceLayout& layout) const {
    return forward(ctx, tokens, layout, path_);
  }
  /// Embeds tokens a further time in the same forward. @param dropout_path  names its dropout mask.
  Tensor forward(Context& ctx, const Tensor& tokens, const SequenceLayout& layout, std::string_view dropout_path) const;
  Parameter& word_embeddings() const { return word_embeddings_->weight(); }

 private:
  std::string path_;
  double dropout_, multiplier_;
  DType hidden_dtype_;
  ProcessGroup tensor_group_;
  bool sequence_parallel_;
  std::unique_ptr<VocabParallelEmbedding> word_embeddings_;
  std::unique_ptr<Parameter> position_embeddings_;
};

}  // namespace megatron
