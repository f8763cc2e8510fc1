// Floating-point operations of a training step, counted from the sizes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "megatron/pipeline_parallel/pipeline_layout.h"

namespace megatron {

struct TransformerConfig;

/// Latent attention's sizes.
struct LatentAttentionSizes {
  std::optional<int64_t> q_lora_rank;
  int64_t kv_lora_rank = 0;
  int64_t qk_head_dim = 0;
  int64_t qk_pos_emb_head_dim = 0;
  int64_t v_head_dim = 0;
};

/// What operations are counted from. Defaults: a dense model.
struct FlopsSizes {
  int64_t hidden_size = 0;
  int64_t num_attention_heads = 0;
  int64_t num_query_groups = 0;
  int64_t kv_channels = 0;
  int64_t ffn_hidden_size = 0;
  int64_t padded_vocab_size = 0;
  int64_t num_dense_layers = 0;  ///< multi-token prediction layers included, here and in the next
  int64_t num_moe_layers = 0;
  bool swiglu = false;
  bool attention_output_gate = false;
  int64_t mtp_num_layers = 0;
  int64_t moe_ffn_hidden_size = 0;
  int64_t moe_router_topk = 0;
  int64_t moe_shared_expert_intermediate_size = 0;
  std::optional<int64_t> moe_latent_size;
  std::optional<LatentAttentionSizes> latent_attention;
};

/// The sizes of a dense model.
FlopsSizes flops_sizes_of(const TransformerConfig& config);

/// Forward and backward (3 times forward) matrix products at 2 operations per multiply-add, with the causal half of the
/// attention square, without recompute, with the padded vocabulary's logits; Megatron's throughput number.
/// As there, quick-GeGLU counts two matrices instead of three, and a sliding window counts as full attention.
/// @param num_tokens         tokens of the batch
/// @param sum_squared_lengths  sum over its sequences (documents, when packed) of the squared length
double theoretical_flops(const FlopsSizes& sizes, double num_tokens, double sum_squared_lengths);

/// A batch of `batch_size` sequences of `seq_length` tokens.
double theoretical_flops(const FlopsSizes& sizes, int64_t batch_size, int64_t seq_length);

/// What balanced_layout needs to know: operations of the head in those of an average layer, for sequences of
/// `seq_length` tokens. The embedding multiplies nothing. Sizes without layers or without width cost one layer each.
LayerCosts layer_costs_of(const FlopsSizes& sizes, int64_t seq_length);

}  // namespace megatron
