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
                                        .max_position_embeddings = 4096,
                                        .norm_epsilon = 1e-5};

std::vector<TensorRule> phi3_attention_tensors() {
  return {
      {"decoder.layers.self_attention.linear_qkv.layer_norm_weight", {"model.layers.{}.input_layernorm.weight"}},
      {"decoder.layers.self_attention.linear_qkv.weight",
       {"model.layers.{}.self_attn.qkv_proj.weight"},
       Arrangement::kFusedQkv},
      {"decoder.layers.self_attention.linear_proj.weight", {"model.layers.{}.self_attn.o_proj.weight"}},
  };
}

void derive_phi3(ConfigReader& config, Json& arguments) {
  derive_decoder(config, arguments, kPhi3Defaults);
  set_sliding_window(arguments, config.integer("sliding_window", 0));
  derive_hidden_dropout(config, arguments, "resid_pdrop", "embd_pdrop", 0);
}

void restore_phi3(const Json& arguments, Json& config) {
  restore_heads(arguments, config);
  restore_rope(arguments, config, PartialRotation::kSupported);
  restore_tied_embeddings(arguments, config);
  restore_sliding_window(arguments, config);
  restore_hidden_dropout(arguments, config, "resid_pdrop", "embd_pdrop");
}

}  // namespace

Family phi3_family() {
  Family family = llama_like_family("phi3", "Phi3ForCausalLM", kPhi3Defaults);
  // Without longrope, which extends it, this length has no effect.
  family.without_effect = {"original_max_position_embeddings"};
  // Published files have these keys, which the classes of transformers do not read.
  const std::vector<ConfigChoice> choices = {{"attention_bias", {false}, Written::kNever},
                                             {"mlp_bias", {false}, Written::kNever},
                                             {"lm_head_bias", {false}, Written::kNever},
                                             {"full_attn_mod", {1}, Written::kNever},
                                             {"interpolate_factor", {1}, Written::kNever}};
  family.choices.insert(family.choices.end(), choices.begin(), choices.end());
  family.derive = derive_phi3;
  family.restore = restore_phi3;
  family.tensors = all_of(
      {llama_outer_tensors(), phi3_attention_tensors(), feed_forward_tensors({"mlp.gate_up_proj"}, "mlp.down_proj")});
  return family;
}

}  // namespace megatron::hugging_face
