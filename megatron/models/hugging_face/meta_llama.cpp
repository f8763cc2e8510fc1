#include "megatron/models/hugging_face/meta_llama.h"

#include <algorithm>

#include "megatron/base/error.h"
#include "megatron/base/word_list.h"
#include "megatron/models/hugging_face/config_reader.h"

namespace megatron::hugging_face {
namespace {

constexpr int64_t kPositions = 4096, kPositionsOfVersion3 = 8192, kScaledPositions = 131072;
constexpr double kThetaOfVersion3 = 500000;
constexpr int64_t kWidestOfSmall = 3072;

Json rope_of(ConfigReader& params, int64_t width) {
  const double theta = params.number("rope_theta", 10000);
  if (!params.flag("use_scaled_rope", false)) return {{"rope_type", "default"}, {"rope_theta", theta}};
  return {{"rope_type", "llama3"},
          {"rope_theta", theta},
          {"factor", params.number("rope_scaling_factor", width <= kWidestOfSmall ? 32 : 8)},
          {"low_freq_factor", 1.0},
          {"high_freq_factor", params.number("rope_high_freq_factor", 4)},
          {"original_max_position_embeddings", kPositionsOfVersion3}};
}

int64_t positions_of(ConfigReader& params) {
  const bool is_version3 = params.number("rope_theta", 10000) >= kThetaOfVersion3;
  const int64_t published = params.flag("use_scaled_rope", false) ? kScaledPositions
                            : is_version3                         ? kPositionsOfVersion3
                                                                  : kPositions;
  return params.integer("max_seq_len", published);
}

}  // namespace

std::vector<MetaRule> meta_llama_tensors() {
  constexpr bool kRotaryPairs = true;
  return {
      {"model.embed_tokens.weight", "tok_embeddings.weight", MetaSplit::kEmbedding},
      {"model.layers.{}.input_layernorm.weight", "layers.{}.attention_norm.weight", MetaSplit::kRepeated},
      {"model.layers.{}.self_attn.q_proj.weight", "layers.{}.attention.wq.weight", MetaSplit::kRows, kRotaryPairs},
      {"model.layers.{}.self_attn.k_proj.weight", "layers.{}.attention.wk.weight", MetaSplit::kRows, kRotaryPairs},
      {"model.layers.{}.self_attn.v_proj.weight", "layers.{}.attention.wv.weight", MetaSplit::kRows},
      {"model.layers.{}.self_attn.o_proj.weight", "layers.{}.attention.wo.weight", MetaSplit::kColumns},
      {"model.layers.{}.post_attention_layernorm.weight", "layers.{}.ffn_norm.weight", MetaSplit::kRepeated},
      {"model.layers.{}.mlp.gate_proj.weight", "layers.{}.feed_forward.w1.weight", MetaSplit::kRows},
      {"model.layers.{}.mlp.up_proj.weight", "layers.{}.feed_forward.w3.weight", MetaSplit::kRows},
      {"model.layers.{}.mlp.down_proj.weight", "layers.{}.feed_forward.w2.weight", MetaSplit::kColumns},
      {"model.norm.weight", "norm.weight", MetaSplit::kRepeated},
      {"lm_head.weight", "output.weight", MetaSplit::kRows},
  };
}

Json meta_llama_config(const Json& params, const MetaSizes& sizes, const std::string& source) {
  ConfigReader reader(params);
  for (const char* key : {"dim", "n_layers", "n_heads"})
    if (!reader.has(key)) reader.reject("{} is missing", key);
  // The sizes of tensors say the first three; the others belong to inference.
  for (const char* key : {"vocab_size", "ffn_dim_multiplier", "multiple_of", "max_batch_size", "model_parallel_size"})
    reader.at(key);
  const int64_t width = reader.integer("dim", 0), heads = reader.integer("n_heads", 1);
  Json config = {{"architectures", {"LlamaForCausalLM"}},
                 {"model_type", "llama"},
                 {"vocab_size", sizes.vocab_size},
                 {"hidden_size", width},
                 {"intermediate_size", sizes.ffn_hidden_size},
                 {"num_hidden_layers", reader.integer("n_layers", 0)},
                 {"num_attention_heads", heads},
                 {"num_key_value_heads", reader.integer("n_kv_heads", heads)},
                 {"head_dim", reader.integer("head_dim", width / std::max<int64_t>(heads, 1))},
                 {"hidden_act", "silu"},
                 {"attention_bias", false},
                 {"mlp_bias", false},
                 {"rms_norm_eps", reader.number("norm_eps", 1e-5)},
                 {"tie_word_embeddings", !sizes.has_output_layer},
                 {"rope_theta", reader.number("rope_theta", 10000)},
                 {"rope_parameters", rope_of(reader, width)},
                 {"max_position_embeddings", positions_of(reader)}};
  for (const std::string& key : reader.unread()) reader.reject("{} is {}, an unknown key", key, params[key].dump());
  require<NotSupported>(reader.mistakes().empty(), "[hugging_face] {} cannot be converted:\n  - {}", source,
                        joined(reader.mistakes(), "\n  - "));
  return config;
}

}  // namespace megatron::hugging_face
