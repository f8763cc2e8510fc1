// The computation of one rank in a training step: sizes of its operands, and how often each occurs.
#pragma once

#include <cstdint>

#include "megatron/training/config/pretrain_config.h"

namespace megatron {

/// The experts of a rank, each with as many tokens.
struct ExpertShapes {
  int64_t num = 0, topk = 0;  // 0 experts: the model has none
  int64_t f = 0;              // width of one on this rank
  int64_t rows = 0;           // of all of them, for a micro-batch
};

/// The part of a model on a tensor-parallel rank, and one micro-batch. Legend: style of transformer_config.h.
struct StepShapes {
  TransformerConfig model;
  int64_t cp = 1;        // ranks that share a sequence
  int64_t s = 0, b = 0;  // of a micro-batch on one of them
  int64_t t = 0;         // its tokens, s * b
  int64_t rows = 0;      // of hidden states between the linear layers: t, or t / tp under sequence parallelism
  int64_t h = 0, d = 0;
  int64_t n = 0, g = 0, f = 0, v = 0;  // local: query heads, key heads, feed-forward width, rows of the vocabulary
  ExpertShapes experts;
  int64_t num_microbatches = 0;
  DType gradient_dtype = DType::kFloat32;  // of weights
  OptimizerConfig optimizer;

  /// Dtype of the residual stream.
  DType hidden_dtype() const { return model.fp32_residual_connection ? DType::kFloat32 : model.params_dtype; }
  int64_t qkv_columns() const { return (n + 2 * g) * d; }
  int64_t fc1_columns() const { return model.gated_linear_unit ? 2 * f : f; }
  /// Says whether queries and keys are rotated, in layers that do not skip it.
  bool has_rotation() const {
    return model.position_embedding_type == PositionEmbeddingType::kRope ||
           model.position_embedding_type == PositionEmbeddingType::kYarn;
  }
  bool has_norms_of_heads() const { return model.qk_layernorm || model.qk_l2_norm; }
  /// Says whether attention reads the projection in place, in a layer without rotation (SelfAttention::forward).
  bool reads_projection() const { return n == g && !has_norms_of_heads(); }
};

/// @param config  resolved, its vocabulary included
StepShapes step_shapes_of(const PretrainConfig& config);

/// The part of the model on a pipeline rank: its virtual stages together.
struct StageParts {
  int64_t num_attention = 0, num_feed_forward = 0;  // layers that have them
  int64_t num_experts = 0;                          // layers of experts instead of a dense feed-forward
  bool has_embedding = false, has_head = false;

  int64_t num_residual_blocks() const { return num_attention + num_feed_forward + num_experts; }
};
/// @param rank  pipeline rank. @throw NotSupported for kinds of layers that cannot be built.
StageParts stage_parts_of(const PretrainConfig& config, int rank);

/// Parameters of a rank of such a stage, and those that its optimizer updates: a part of them with the distributed
/// optimizer. A copy of tied embeddings on the last stage counts.
int64_t num_parameters(const StepShapes& shapes, const StageParts& stage);
int64_t num_optimized_parameters(const PretrainConfig& config, const StepShapes& shapes, const StageParts& stage);

}  // namespace megatron
