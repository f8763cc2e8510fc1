// Flags of the network that TransformerConfig does not take over as they are: aliases, switches and unset values.
#pragma once

#include <cstdint>
#include <optional>

#include "megatron/transformer/mla_config.h"

namespace megatron {

/// After resolve() every optional that has a derived value holds it, as Megatron's arguments do.
struct ModelConfig {
  std::optional<int64_t> num_layers;
  std::optional<int64_t> encoder_num_layers;  ///< old name of num_layers
  std::optional<int64_t> hidden_size;
  std::optional<int64_t> num_attention_heads;
  std::optional<int64_t> ffn_hidden_size;
  std::optional<int64_t> kv_channels;
  bool group_query_attention = false;
  int64_t num_query_groups = 1;  ///< means nothing without group_query_attention, which its flag turns on
  std::optional<int64_t> seq_length;
  std::optional<int64_t> encoder_seq_length;  ///< old name of seq_length
  std::optional<int64_t> decoder_seq_length;
  std::optional<int64_t> max_position_embeddings;
  bool untie_embeddings_and_output_weights = false;

  bool swiglu = false;
  bool geglu = false;
  bool quick_geglu = false;
  bool squared_relu = false;
  bool openai_gelu = false;
  bool bias_gelu_fusion = true;  ///< with biases and the default activation: tanh form of GELU, as Megatron's kernel

  bool use_rotary_position_embeddings = false;  ///< old name of --position-embedding-type rope
  bool add_position_embedding = true;
  std::optional<int64_t> yarn_original_max_position_embeddings;
  std::optional<double> yarn_beta_fast;
  std::optional<double> yarn_beta_slow;
  std::optional<bool> yarn_correction_range_round_to_int;
  std::optional<double> embedding_init_method_std;

  std::optional<int64_t> mtp_num_layers;
  bool multi_latent_attention = false;
  MlaConfig mla = {};  ///< means nothing without multi_latent_attention
  std::optional<RopeType> rope_type;

  bool recompute_activations = false;  ///< old name of --recompute-granularity selective
  std::optional<int64_t> recompute_num_layers;
};

}  // namespace megatron
