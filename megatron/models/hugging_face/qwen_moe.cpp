// Qwen 2 and 3 with experts in all layers or in some; Qwen 2 has a shared expert with a gate beside them.
#include "megatron/models/hugging_face/qwen_moe.h"

#include <algorithm>

#include "megatron/models/hugging_face/llama.h"
#include "megatron/models/hugging_face/qwen.h"

namespace megatron::hugging_face {
namespace {

void append_expert_tensors(std::vector<TensorRule>& rules) {
  const std::vector<TensorRule> experts = {
      {"decoder.layers.pre_mlp_layernorm.weight", {"model.layers.{}.post_attention_layernorm.weight"}},
      {"decoder.layers.mlp.router.weight", {"model.layers.{}.mlp.gate.weight"}},
      {"decoder.layers.mlp.experts.experts.linear_fc1.weight",
       {"model.layers.{}.mlp.experts.{}.gate_proj.weight", "model.layers.{}.mlp.experts.{}.up_proj.weight"}},
      {"decoder.layers.mlp.experts.experts.linear_fc2.weight", {"model.layers.{}.mlp.experts.{}.down_proj.weight"}},
  };
  rules.insert(rules.end(), experts.begin(), experts.end());
}

void append_shared_expert_tensors(std::vector<TensorRule>& rules) {
  const std::vector<TensorRule> shared = {
      {"decoder.layers.mlp.shared_experts.linear_fc1.weight",
       {"model.layers.{}.mlp.shared_expert.gate_proj.weight", "model.layers.{}.mlp.shared_expert.up_proj.weight"}},
      {"decoder.layers.mlp.shared_experts.linear_fc2.weight", {"model.layers.{}.mlp.shared_expert.down_proj.weight"}},
      {"decoder.layers.mlp.shared_experts.gate_weight", {"model.layers.{}.mlp.shared_expert_gate.weight"}},
  };
  rules.insert(rules.end(), shared.begin(), shared.end());
}

/// A layer has experts if decoder_sparse_step divides its number, from 1, and mlp_only_layers does not name it.
void derive_expert_layers(ConfigReader& config, Json& arguments, int64_t num_layers) {
  const int64_t step = config.integer("decoder_sparse_step", 1);
  std::vector<int64_t> dense;
  if (const Json& layers = config.at("mlp_only_layers"); layers.is_array())
    for (const Json& layer : layers) dense.push_back(layer.is_number_integer() ? layer.get<int64_t>() : -1);
  Json marks = Json::array();
  bool has_dense = false;
  for (int64_t layer = 0; layer < num_layers; ++layer) {
    const bool has_experts = step > 0 && (layer + 1) % step == 0 && std::ranges::find(dense, layer) == dense.end();
    marks.push_back(has_experts ? 1 : 0);
    has_dense = has_dense || !has_experts;
  }
  if (has_dense) arguments["moe_layer_freq"] = std::move(marks);
}

/// Softmax over all experts before the choice, unless the chosen probabilities are divided by their sum: then the order
/// does not matter.
void derive_router(ConfigReader& config, Json& arguments) {
  arguments["moe_router_pre_softmax"] = !config.flag("norm_topk_prob", false);
}

void derive_qwen_moe(ConfigReader& config, Json& arguments, const DecoderDefaults& defaults) {
  derive_heads(config, arguments, defaults);
  derive_rope(config, arguments);
  derive_tied_embeddings(config, arguments, false);
  derive_qwen_windows(config, arguments, defaults.num_hidden_layers);
  derive_expert_layers(config, arguments, config.integer("num_hidden_layers", defaults.num_hidden_layers));
  derive_router(config, arguments);
}

Family qwen_moe_family(const DecoderDefaults& defaults) {
  Family family{.model_type = {},
                .architecture = {},
                .arguments = llama_arguments(),
                .values = decoder_values(defaults),
                .choices = {{"hidden_act", {"silu"}}},
                // This key decides if transformers returns the router's logits and adds its loss.
                .without_effect = {"output_router_logits"},
                .derive = {},
                .tensors = llama_tensors(),
                .ignored_tensors = {}};
  family.values.push_back({"rms_norm_eps", "layernorm_epsilon", 1e-6});
  family.values.push_back({"router_aux_loss_coef", "moe_aux_loss_coeff", 0.001});
  append_expert_tensors(family.tensors);
  return family;
}

}  // namespace

Family qwen2_moe_family() {
  const DecoderDefaults defaults{.vocab_size = 151936,
                                 .hidden_size = 2048,
                                 .intermediate_size = 5632,
                                 .num_hidden_layers = 24,
                                 .num_attention_heads = 16,
                                 .num_key_value_heads = 16,
                                 .max_position_embeddings = 32768};
  Family family = qwen_moe_family(defaults);
  family.model_type = "qwen2_moe";
  family.architecture = "Qwen2MoeForCausalLM";
  family.arguments["moe_shared_expert_gate"] = true;
  const std::vector<ConfigValue> values = {
      {"moe_intermediate_size", "moe_ffn_hidden_size", 1408},
      {"shared_expert_intermediate_size", "moe_shared_expert_intermediate_size", 5632},
      {"num_experts", "num_experts", 60},
      {"num_experts_per_tok", "moe_router_topk", 4},
      {"qkv_bias", "add_qkv_bias", true}};
  family.values.insert(family.values.end(), values.begin(), values.end());
  family.derive = [defaults](ConfigReader& config, Json& arguments) { derive_qwen_moe(config, arguments, defaults); };
  append_shared_expert_tensors(family.tensors);
  return family;
}

Family qwen3_moe_family() {
  const DecoderDefaults defaults{.vocab_size = 151936,
                                 .hidden_size = 2048,
                                 .intermediate_size = 6144,
                                 .num_hidden_layers = 24,
                                 .num_attention_heads = 32,
                                 .num_key_value_heads = 4,
                                 .max_position_embeddings = 32768};
  Family family = qwen_moe_family(defaults);
  family.model_type = "qwen3_moe";
  family.architecture = "Qwen3MoeForCausalLM";
  family.choices.push_back({"attention_bias", {false}});
  family.arguments["qk_layernorm"] = true;
  family.values.push_back({"moe_intermediate_size", "moe_ffn_hidden_size", 768});
  family.values.push_back({"num_experts_per_tok", "moe_router_topk", 8});
  family.derive = [defaults](ConfigReader& config, Json& arguments) {
    derive_qwen_moe(config, arguments, defaults);
    // transformers 5 writes num_local_experts.
    arguments["num_experts"] = config.integer("num_experts", config.integer("num_local_experts", 128));
  };
  append_query_key_norms(family.tensors);
  return family;
}

}  // namespace megatron::hugging_face
