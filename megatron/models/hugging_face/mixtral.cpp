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
                                           .max_position_embeddings = 131072,
                                           .norm_epsilon = 1e-5,
                                           .rope_theta = 1000000};

void derive_mixtral(ConfigReader& config, Json& arguments) {
  derive_decoder(config, arguments, kMixtralDefaults);
  set_sliding_window(arguments, config.integer("sliding_window", 0));
  arguments["moe_ffn_hidden_size"] = config.integer("intermediate_size", kMixtralDefaults.intermediate_size);
}

void restore_mixtral(const Json& arguments, Json& config) {
  restore_decoder(arguments, config);
  restore_sliding_window(arguments, config);
  config["intermediate_size"] = argument_or(arguments, "moe_ffn_hidden_size", Json());
}

}  // namespace

Family mixtral_family() {
  Family family = llama_like_family("mixtral", "MixtralForCausalLM", kMixtralDefaults);
  family.choices.push_back({"router_jitter_noise", {0.0, 0}});
  // This key decides if transformers returns the router's logits and adds its loss.
  family.without_effect = {"output_router_logits"};
  family.derive = derive_mixtral;
  family.restore = restore_mixtral;
  family.tensors = all_of(
      {llama_outer_tensors(), llama_attention_tensors(), expert_tensors("block_sparse_moe", {"w1", "w3"}, "w2")});
  const std::vector<ConfigValue> values = {{"num_local_experts", "num_experts", 8},
                                           {"num_experts_per_tok", "moe_router_topk", 2},
                                           {"router_aux_loss_coef", "moe_aux_loss_coeff", 0.001}};
  family.values.insert(family.values.end(), values.begin(), values.end());
  return family;
}

}  // namespace megatron::hugging_face
