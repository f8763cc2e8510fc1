// Phi-3: Llama with query, key and value in one tensor, and gate and up in another.
#include "megatron/models/hugging_face/phi3.h"

#include "megatron/models/hugging_face/llama.h"

namespace megatron::hugging_face {
namespace {

constexpr DecoderDefaults kPhi3Defaults{.vocab_size = 32064,
                                        .hidden_size = 3072,
                                        .intermediate_size = 8192,
                                        .num_hidden_layers = 32,
                                        .num_attention_heads = 32,
                                        .max_position_embeddings = 4096};

std::vector<TensorRule> phi3_tensors() {
  std::vector<TensorRule> rules = llama_outer_tensors();
  const std::vector<TensorRule> layer = {
      {"decoder.layers.self_attention.linear_qkv.layer_norm_weight", {"model.layers.{}.input_layernorm.weight"}},
      {"decoder.layers.self_attention.linear_qkv.weight",
       {"model.layers.{}.self_attn.qkv_proj.weight"},
       Arrangement::kFusedQkv},
      {"decoder.layers.self_attention.linear_proj.weight", {"model.layers.{}.self_attn.o_proj.weight"}},
      {"decoder.layers.mlp.linear_fc1.layer_norm_weight", {"model.layers.{}.post_attention_layernorm.weight"}},
      {"decoder.layers.mlp.linear_fc1.weight", {"model.layers.{}.mlp.gate_up_proj.weight"}},
      {"decoder.layers.mlp.linear_fc2.weight", {"model.layers.{}.mlp.down_proj.weight"}},
  };
  rules.insert(rules.end(), layer.begin(), layer.end());
  return rules;
}

void derive_phi3(ConfigReader& config, Json& arguments) {
  derive_heads(config, arguments, kPhi3Defaults);
  derive_rope(config, arguments);
  derive_tied_embeddings(config, arguments, false);
  set_sliding_window(arguments, config.integer("sliding_window", 0));
  derive_hidden_dropout(config, arguments, "resid_pdrop", "embd_pdrop", 0);
}

}  // namespace

Family phi3_family() {
  Family family{.model_type = "phi3",
                .architecture = "Phi3ForCausalLM",
                .arguments = llama_arguments(),
                .values = decoder_values(kPhi3Defaults),
                .choices = {{"hidden_act", {"silu"}}},
                // The length before longrope's extension; longrope itself is rejected.
                .without_effect = {"original_max_position_embeddings"},
                .derive = derive_phi3,
                .tensors = phi3_tensors(),
                .ignored_tensors = {}};
  family.values.push_back({"rms_norm_eps", "layernorm_epsilon", 1e-5});
  return family;
}

}  // namespace megatron::hugging_face
