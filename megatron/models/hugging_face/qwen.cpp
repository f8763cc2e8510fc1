// Qwen 2 and 3: Llama with biases of query, key and value, or with norms of queries and keys; a window in late layers.
#include "megatron/models/hugging_face/qwen.h"

#include "megatron/models/hugging_face/llama.h"

namespace megatron::hugging_face {
namespace {

constexpr int64_t kWindow = 4096, kMaxWindowLayers = 28;

Family qwen_family(std::string model_type, std::string architecture, const DecoderDefaults& defaults) {
  Family family = llama_like_family(std::move(model_type), std::move(architecture), defaults);
  family.choices.push_back({"attention_bias", {false}});
  family.choices.push_back({"use_mrope", {false}, Written::kNever});  // positions of images, in Qwen 2.5's text models
  family.derive = [defaults](ConfigReader& config, Json& arguments) {
    derive_decoder(config, arguments, defaults);
    derive_qwen_windows(config, arguments, defaults.num_hidden_layers);
  };
  family.restore = restore_qwen;
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

void restore_qwen(const Json& arguments, Json& config) {
  restore_decoder(arguments, config);
  config["use_sliding_window"] = restore_sliding_layers(arguments, config);
  if (!config.contains("sliding_window")) config["sliding_window"] = nullptr;
}

Family qwen2_family() {
  Family family = qwen_family("qwen2", "Qwen2ForCausalLM",
                              {.vocab_size = 151936,
                               .hidden_size = 4096,
                               .intermediate_size = 22016,
                               .num_hidden_layers = 32,
                               .num_attention_heads = 32,
                               .num_key_value_heads = 32,
                               .max_position_embeddings = 32768});
  family.arguments["add_qkv_bias"] = true;
  return family;
}

Family qwen3_family() {
  Family family = qwen_family("qwen3", "Qwen3ForCausalLM",
                              {.vocab_size = 151936,
                               .hidden_size = 4096,
                               .intermediate_size = 22016,
                               .num_hidden_layers = 32,
                               .num_attention_heads = 32,
                               .num_key_value_heads = 32,
                               .head_dim = 128,
                               .max_position_embeddings = 32768});
  family.arguments["qk_layernorm"] = true;
  family.tensors = all_of({family.tensors, query_key_norm_tensors()});
  return family;
}

}  // namespace megatron::hugging_face
