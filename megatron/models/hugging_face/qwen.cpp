// Qwen 2 and 3: Llama with biases of query, key and value, or with norms of queries and keys; a window in late layers.
#include "megatron/models/hugging_face/qwen.h"

#include "megatron/models/hugging_face/llama.h"

namespace megatron::hugging_face {
namespace {

constexpr int64_t kWindow = 4096, kMaxWindowLayers = 28;

Family qwen_family(const DecoderDefaults& defaults) {
  Family family{.arguments = llama_arguments(),
                .values = decoder_values(defaults),
                .choices = {{"hidden_act", {"silu"}}, {"attention_bias", {false}}},
                .derive =
                    [defaults](ConfigReader& config, Json& arguments) {
                      derive_heads(config, arguments, defaults);
                      derive_rope(config, arguments);
                      derive_tied_embeddings(config, arguments, false);
                      derive_qwen_windows(config, arguments, defaults.num_hidden_layers);
                    },
                .tensors = llama_tensors()};
  family.values.push_back({"rms_norm_eps", "layernorm_epsilon", 1e-6});
  return family;
}

}  // namespace

void derive_qwen_windows(ConfigReader& config, Json& arguments, int64_t default_layers) {
  const auto num_layers = static_cast<size_t>(config.integer("num_hidden_layers", default_layers));
  const bool uses_window = config.flag("use_sliding_window", false);
  const int64_t window = config.integer("sliding_window", kWindow);
  const int64_t first = config.integer("max_window_layers", kMaxWindowLayers);
  std::vector<bool> is_sliding(num_layers);
  for (size_t layer = 0; layer < num_layers; ++layer)
    is_sliding[layer] = uses_window && static_cast<int64_t>(layer) >= first;
  read_layer_types(config, is_sliding);
  set_sliding_layers(arguments, window, is_sliding);
}

void append_query_key_norms(std::vector<TensorRule>& rules) {
  rules.push_back({"decoder.layers.self_attention.q_layernorm.weight", {"model.layers.{}.self_attn.q_norm.weight"}});
  rules.push_back({"decoder.layers.self_attention.k_layernorm.weight", {"model.layers.{}.self_attn.k_norm.weight"}});
}

Family qwen2_family() {
  Family family = qwen_family({.vocab_size = 151936,
                               .hidden_size = 4096,
                               .intermediate_size = 22016,
                               .num_hidden_layers = 32,
                               .num_attention_heads = 32,
                               .num_key_value_heads = 32,
                               .max_position_embeddings = 32768});
  family.model_type = "qwen2";
  family.architecture = "Qwen2ForCausalLM";
  family.arguments["add_qkv_bias"] = true;
  return family;
}

Family qwen3_family() {
  Family family = qwen_family({.vocab_size = 151936,
                               .hidden_size = 4096,
                               .intermediate_size = 22016,
                               .num_hidden_layers = 32,
                               .num_attention_heads = 32,
                               .num_key_value_heads = 32,
                               .head_dim = 128,
                               .max_position_embeddings = 32768});
  family.model_type = "qwen3";
  family.architecture = "Qwen3ForCausalLM";
  family.arguments["qk_layernorm"] = true;
  append_query_key_norms(family.tensors);
  return family;
}

}  // namespace megatron::hugging_face
