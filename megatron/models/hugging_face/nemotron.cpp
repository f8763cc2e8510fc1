// Nemotron: LayerNorm with (1 + weight), squared ReLU, a part of each head rotated.
#include "megatron/models/hugging_face/nemotron.h"

#include "megatron/models/hugging_face/llama.h"

namespace megatron::hugging_face {
namespace {

constexpr DecoderDefaults kNemotronDefaults{.vocab_size = 256000,
                                            .hidden_size = 6144,
                                            .intermediate_size = 24576,
                                            .num_hidden_layers = 32,
                                            .num_attention_heads = 48,
                                            .max_position_embeddings = 4096};

std::vector<TensorRule> nemotron_tensors() {
  std::vector<TensorRule> rules = llama_outer_tensors();
  for (TensorRule& rule : llama_attention_tensors()) rules.push_back(std::move(rule));
  const std::vector<TensorRule> more = {
      {"decoder.layers.self_attention.linear_qkv.layer_norm_bias", {"model.layers.{}.input_layernorm.bias"}},
      {"decoder.layers.mlp.linear_fc1.layer_norm_weight", {"model.layers.{}.post_attention_layernorm.weight"}},
      {"decoder.layers.mlp.linear_fc1.layer_norm_bias", {"model.layers.{}.post_attention_layernorm.bias"}},
      {"decoder.layers.mlp.linear_fc1.weight", {"model.layers.{}.mlp.up_proj.weight"}},
      {"decoder.layers.mlp.linear_fc1.bias", {"model.layers.{}.mlp.up_proj.bias"}},
      {"decoder.layers.mlp.linear_fc2.weight", {"model.layers.{}.mlp.down_proj.weight"}},
      {"decoder.layers.mlp.linear_fc2.bias", {"model.layers.{}.mlp.down_proj.bias"}},
  };
  rules.insert(rules.end(), more.begin(), more.end());
  return rules;
}

}  // namespace

Family nemotron_family() {
  Family family{.model_type = "nemotron",
                .architecture = "NemotronForCausalLM",
                .arguments = {{"normalization", "LayerNorm"},
                              {"layernorm_zero_centered_gamma", true},
                              {"squared_relu", true},
                              {"bias_gelu_fusion", false},
                              {"hidden_dropout", 0.0},
                              {"rotary_percent", 0.5}},
                .values = decoder_values(kNemotronDefaults),
                .choices = {{"hidden_act", {"relu2"}}},
                .without_effect = {},
                .derive =
                    [](ConfigReader& config, Json& arguments) {
                      derive_heads(config, arguments, kNemotronDefaults);
                      derive_linear_biases(config, arguments);
                      derive_rope(config, arguments);
                      derive_tied_embeddings(config, arguments, false);
                    },
                .tensors = nemotron_tensors(),
                .ignored_tensors = {}};
  family.values.push_back({"norm_eps", "layernorm_epsilon", 1e-5});
  return family;
}

}  // namespace megatron::hugging_face
