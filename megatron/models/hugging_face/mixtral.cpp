// Mixtral: Mistral with experts in every layer. Softmax over the chosen experts is softmax over all, divided by its sum
// over the chosen.
#include "megatron/models/hugging_face/mixtral.h"

#include "megatron/models/hugging_face/llama.h"

namespace megatron::hugging_face {
namespace {

constexpr DecoderDefaults kMixtralDefaults{.vocab_size = 32000,
                                           .hidden_size = 4096,
                                           .intermediate_size = 14336,
                                           .num_hidden_layers = 32,
                                           .num_attention_heads = 32,
                                           .num_key_value_heads = 8,
                                           .max_position_embeddings = 131072};

std::vector<TensorRule> mixtral_tensors() {
  std::vector<TensorRule> rules = llama_outer_tensors();
  for (TensorRule& rule : llama_attention_tensors()) rules.push_back(std::move(rule));
  const std::vector<TensorRule> experts = {
      {"decoder.layers.pre_mlp_layernorm.weight", {"model.layers.{}.post_attention_layernorm.weight"}},
      {"decoder.layers.mlp.router.weight", {"model.layers.{}.block_sparse_moe.gate.weight"}},
      {"decoder.layers.mlp.experts.experts.linear_fc1.weight",
       {"model.layers.{}.block_sparse_moe.experts.{}.w1.weight",
        "model.layers.{}.block_sparse_moe.experts.{}.w3.weight"}},
      {"decoder.layers.mlp.experts.experts.linear_fc2.weight",
       {"model.layers.{}.block_sparse_moe.experts.{}.w2.weight"}},
  };
  rules.insert(rules.end(), experts.begin(), experts.end());
  return rules;
}

void derive_mixtral(ConfigReader& config, Json& arguments) {
  derive_heads(config, arguments, kMixtralDefaults);
  derive_rope(config, arguments, 1000000);
  derive_tied_embeddings(config, arguments, false);
  set_sliding_window(arguments, config.integer("sliding_window", 0));
  arguments["moe_ffn_hidden_size"] = config.integer("intermediate_size", kMixtralDefaults.intermediate_size);
}

}  // namespace

Family mixtral_family() {
  Family family{.model_type = "mixtral",
                .architecture = "MixtralForCausalLM",
                .arguments = llama_arguments(),
                .values = decoder_values(kMixtralDefaults),
                .choices = {{"hidden_act", {"silu"}}, {"router_jitter_noise", {0.0, 0}}},
                // This key decides if transformers returns the router's logits and adds its loss.
                .without_effect = {"output_router_logits"},
                .derive = derive_mixtral,
                .tensors = mixtral_tensors(),
                .ignored_tensors = {}};
  const std::vector<ConfigValue> values = {{"rms_norm_eps", "layernorm_epsilon", 1e-5},
                                           {"num_local_experts", "num_experts", 8},
                                           {"num_experts_per_tok", "moe_router_topk", 2},
                                           {"router_aux_loss_coef", "moe_aux_loss_coeff", 0.001}};
  family.values.insert(family.values.end(), values.begin(), values.end());
  return family;
}

}  // namespace megatron::hugging_face
