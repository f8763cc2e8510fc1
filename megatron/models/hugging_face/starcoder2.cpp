// StarCoder 2: LayerNorm, biases of all linear layers, GELU in its tanh form, rotary positions, a sliding window.
#include "megatron/models/hugging_face/starcoder2.h"

#include "megatron/models/hugging_face/llama.h"

namespace megatron::hugging_face {
namespace {

constexpr DecoderDefaults kStarcoder2Defaults{.vocab_size = 49152,
                                              .hidden_size = 3072,
                                              .intermediate_size = 12288,
                                              .num_hidden_layers = 30,
                                              .num_attention_heads = 24,
                                              .num_key_value_heads = 2,
                                              .max_position_embeddings = 4096};

std::vector<TensorRule> starcoder2_tensors() {
  std::vector<TensorRule> rules = llama_outer_tensors();
  for (TensorRule& rule : llama_attention_tensors()) rules.push_back(std::move(rule));
  const std::vector<TensorRule> more = {
      {"decoder.layers.self_attention.linear_qkv.layer_norm_bias", {"model.layers.{}.input_layernorm.bias"}},
      {"decoder.layers.mlp.linear_fc1.layer_norm_weight", {"model.layers.{}.post_attention_layernorm.weight"}},
      {"decoder.layers.mlp.linear_fc1.layer_norm_bias", {"model.layers.{}.post_attention_layernorm.bias"}},
      {"decoder.layers.mlp.linear_fc1.weight", {"model.layers.{}.mlp.c_fc.weight"}},
      {"decoder.layers.mlp.linear_fc1.bias", {"model.layers.{}.mlp.c_fc.bias"}},
      {"decoder.layers.mlp.linear_fc2.weight", {"model.layers.{}.mlp.c_proj.weight"}},
      {"decoder.layers.mlp.linear_fc2.bias", {"model.layers.{}.mlp.c_proj.bias"}},
  };
  rules.insert(rules.end(), more.begin(), more.end());
  return rules;
}

void derive_starcoder2(ConfigReader& config, Json& arguments) {
  derive_heads(config, arguments, kStarcoder2Defaults);
  derive_rope(config, arguments);
  derive_tied_embeddings(config, arguments, true);
  set_sliding_window(arguments, config.integer("sliding_window", 0));
  const bool has_biases = config.flag("use_bias", true);
  arguments["add_bias_linear"] = has_biases;
  if (!has_biases) arguments["openai_gelu"] = true;  // with biases the tanh form is the default
  derive_hidden_dropout(config, arguments, "residual_dropout", "embedding_dropout", 0);
}

}  // namespace

Family starcoder2_family() {
  Family family{.model_type = "starcoder2",
                .architecture = "Starcoder2ForCausalLM",
                .arguments = {{"normalization", "LayerNorm"}},
                .values = decoder_values(kStarcoder2Defaults),
                .choices = {{"hidden_act", {"gelu_pytorch_tanh"}}},
                .without_effect = {},
                .derive = derive_starcoder2,
                .tensors = starcoder2_tensors(),
                .ignored_tensors = {}};
  family.values.push_back({"norm_epsilon", "layernorm_epsilon", 1e-5});
  return family;
}

}  // namespace megatron::hugging_face
