// The families around Llama, and the parts of their tables that others share.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/models/hugging_face/config_reader.h"
#include "megatron/models/hugging_face/config_writer.h"

namespace megatron::hugging_face {

Family llama_family();
Family mistral_family();

/// The values of Hugging Face's configuration classes for missing keys.
struct DecoderDefaults {
  int64_t vocab_size = 0, hidden_size = 0, intermediate_size = 0, num_hidden_layers = 0, num_attention_heads = 0;
  int64_t num_key_value_heads = 0;  ///< 0: as many as heads
  int64_t head_dim = 0;             ///< 0: hidden_size / num_attention_heads
  int64_t max_position_embeddings = 0;
  std::string_view norm_key = "rms_norm_eps";  ///< the name of the norms' epsilon
  double norm_epsilon = 1e-6;
  double rope_theta = 10000;
  bool tie_word_embeddings = false;
};
/// Sizes, epsilon, initialisation and dropout.
std::vector<ConfigValue> decoder_values(const DecoderDefaults& defaults);
/// Reads what derive_heads, derive_rope and derive_tied_embeddings read.
void derive_decoder(ConfigReader& config, Json& arguments, const DecoderDefaults& defaults);
/// The inverse of derive_decoder.
void restore_decoder(const Json& arguments, Json& config);
/// num_key_value_heads and head_dim.
void derive_heads(ConfigReader& config, Json& arguments, const DecoderDefaults& defaults);
void restore_heads(const Json& arguments, Json& config);
/// attention_bias and mlp_bias: biases of all linear layers together, or of none.
void derive_linear_biases(ConfigReader& config, Json& arguments);
void restore_linear_biases(const Json& arguments, Json& config);
/// Two rates of dropout that are one in Megatron, of the residual stream and of the embedding.
void derive_hidden_dropout(ConfigReader& config, Json& arguments, std::string_view residual_key,
                           std::string_view embedding_key, double otherwise);
void restore_hidden_dropout(const Json& arguments, Json& config, const std::string& residual_key,
                            const std::string& embedding_key);

/// RMSNorm, SwiGLU, no biases, no dropout of hidden states.
Json llama_arguments();
/// A family whose layers are Llama's; derive_decoder reads its configuration.
Family llama_like_family(std::string model_type, std::string architecture, const DecoderDefaults& defaults);

/// Tables one after the other.
std::vector<TensorRule> all_of(std::initializer_list<std::vector<TensorRule>> tables);
/// All tensors of a Llama.
std::vector<TensorRule> llama_tensors();
/// Embedding, final norm and output layer.
std::vector<TensorRule> llama_outer_tensors();
/// The norm before attention, and attention, with their biases.
std::vector<TensorRule> llama_attention_tensors();
/// A dense feed-forward and the norm before it, with their biases. Names are those within a layer, without endings:
/// "mlp.up_proj".
/// @param up  gate and up projection, or the only one
std::vector<TensorRule> feed_forward_tensors(const std::vector<std::string>& up, const std::string& down,
                                             const std::string& norm = "post_attention_layernorm");
/// Experts, their router and the norm before them. @param module  "mlp". @param up  gate and up projection of an
/// expert.
std::vector<TensorRule> expert_tensors(const std::string& module, const std::vector<std::string>& up,
                                       const std::string& down);
/// The norms behind attention and feed-forward.
std::vector<TensorRule> post_norm_tensors();
/// Norms of queries and keys.
std::vector<TensorRule> query_key_norm_tensors();

}  // namespace megatron::hugging_face
