#include "megatron/models/gpt/gpt_embedding.h"

#include <utility>

#include "megatron/ops/add.h"
#include "megatron/ops/bias_dropout_add.h"
#include "megatron/tensor_parallel/sequence_rows.h"

namespace megatron {
namespace {

double rounded_to(DType dtype, double value) {
  return dispatch_floating(dtype, [&]<class T>() { return static_cast<double>(static_cast<T>(value)); });
}

}  // namespace

GptEmbedding::GptEmbedding(const ModuleContext& context, const TiedCopy& words)
    : path_(context.path + ".dropout"),
      dropout_(context.config.hidden_dropout),
      multiplier_(rounded_to(context.config.params_dtype, context.config.embedding_multiplier)),
      hidden_dtype_(context.config.fp32_residual_connection ? DType::kFloat32 : context.config.params_dtype),
      tensor_group_(context.groups.tp),
      sequence_parallel_(context.sequence_parallel) {
  const TransformerConfig& config = context.config;
  const VocabParallelEmbeddingOptions table{.name = context.path + ".word_embeddings",
                                            .stored = context.at("word_embeddings").stored,
                                            .vocab_size = config.vocab_size,
                                            .padded_vocab_size = config.padded_vocab_size,
                                            .hidden_size = config.hidden_size,
                                            .dtype = config.params_dtype,
                                            .init_std = config.embedding_init_method_std,
                                            .tied = words,
                                            .sequence_parallel = context.sequence_parallel};
  register_module(word_embeddings_, std::make_unique<VocabParallelEmbedding>(context.ctx, table, context.groups.tp));
  if (config.position_embedding_type != PositionEmbeddingType::kLearnedAbsolute) return;
  ParameterOptions positions = context.parameter("position_embeddings.weight",
                                                 ShardSpec::whole({config.max_sequence_length, config.hidden_size}));
  positions.init_std = config.embedding_init_method_std;
  register_parameter(position_embeddings_, context.ctx, std::move(positions));
}

Tensor GptEmbedding::forward(Context& ctx, const Tensor& tokens, const SequenceLayout& layout,
                             std::string_view dropout_path) const {
  const Tensor y = word_embeddings_->forward(ctx, tokens, position_embeddings_.get(), layout);
  const RowMap rows = sequence_rows(layout, tensor_group_, sequence_parallel_).rows;
  return dropout(ctx, cast(ctx, scale(ctx, y, multiplier_), hidden_dtype_),
                 {.rate = dropout_, .path = dropout_path, .rows = rows});
}

}  // namespace megatron
