#include "megatron/models/gpt/gpt_embedding.h"

#include "megatron/ops/add.h"
#include "megatron/ops/bias_dropout_add.h"
#include "megatron/ops/embedding.h"

namespace megatron {

GptEmbedding::GptEmbedding(const ModuleContext& context)
    : path_(context.path + ".dropout"),
      dropout_(context.config.hidden_dropout),
      hidden_dtype_(context.config.fp32_residual_connection ? DType::kFloat32 : context.config.params_dtype) {
  const TransformerConfig& config = context.config;
  ShardSpec words = ShardSpec::whole({config.padded_vocab_size, config.hidden_size});
  words.unpadded_rows = config.vocab_size;
  words.cut = ShardCut{.sections = {{config.padded_vocab_size, false}}};
  if (config.share_embeddings_and_output_weights) words.tie_group = "word_embeddings";
  register_parameter(word_embeddings_, context.ctx,
                     {.name = context.path + ".word_embeddings.weight",
                      .shard = words,
                      .dtype = config.params_dtype,
                      .shard_rank = context.groups.tp.rank(),
                      .num_shards = context.groups.tp.size(),
                      .is_embedding_or_output = true,
                      .init_std = config.embedding_init_method_std});
  if (config.position_embedding_type != PositionEmbeddingType::kLearnedAbsolute) return;
  register_parameter(position_embeddings_, context.ctx,
                     {.name = context.path + ".position_embeddings.weight",
                      .shard = ShardSpec::whole({config.max_sequence_length, config.hidden_size}),
                      .dtype = config.params_dtype,
                      .init_std = config.embedding_init_method_std});
}

Tensor GptEmbedding::forward(Context& ctx, const Tensor& tokens, const SequenceLayout& layout) const {
  const Tensor y = embedding(ctx, tokens, *word_embeddings_, 0, position_embeddings_.get(), layout);
  return dropout(ctx, cast(ctx, y, hidden_dtype_), {.rate = dropout_, .path = path_, .rows = layout.rows()});
}

}  // namespace megatron
