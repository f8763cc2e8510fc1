// The families around Llama, and the parts of their tables that others share.
#pragma once

#include "megatron/models/hugging_face/config_reader.h"

namespace megatron::hugging_face {

Family llama_family();
Family mistral_family();

/// The values of Hugging Face's configuration classes for missing keys.
struct DecoderDefaults {
  int64_t vocab_size = 0, hidden_size = 0, intermediate_size = 0, num_hidden_layers = 0, num_attention_heads = 0;
  int64_t num_key_value_heads = 0;  ///< 0: as many as heads
  int64_t head_dim = 0;             ///< 0: hidden_size / num_attention_heads
  int64_t max_position_embeddings = 0;
};
/// Sizes, initialisation and dropout.
std::vector<ConfigValue> decoder_values(const DecoderDefaults& defaults);
/// num_key_value_heads and head_dim.
void derive_heads(ConfigReader& config, Json& arguments, const DecoderDefaults& defaults);
/// attention_bias and mlp_bias: biases of all linear layers together, or of none.
void derive_linear_biases(ConfigReader& config, Json& arguments);
/// Two rates of dropout that are one in Megatron, of the residual stream and of the embedding.
void derive_hidden_dropout(ConfigReader& config, Json& arguments, std::string_view residual_key,
                           std::string_view embedding_key, double otherwise);

/// RMSNorm, SwiGLU, no biases, no dropout of hidden states.
Json llama_arguments();
/// All tensors of a Llama.
std::vector<TensorRule> llama_tensors();
/// Embedding, final norm and output layer.
std::vector<TensorRule> llama_outer_tensors();
/// The norm before attention, and attention.
std::vector<TensorRule> llama_attention_tensors();

}  // namespace megatron::hugging_face
