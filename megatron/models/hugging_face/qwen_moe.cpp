// Qwen 2 and 3 with experts in all layers or in some; Qwen 2 has a shared expert with a gate beside them.
#include "megatron/models/hugging_face/qwen_moe.h"

#include <algorithm>

#include "megatron/models/hugging_face/llama.h"
#include "megatron/models/hugging_face/qwen.h"

namespace megatron::hugging_face {
namespace {

std::vector<TensorRule> shared_expert_tensors() {
  return {
      {"decoder.layers.mlp.shared_experts.linear_fc1.weight",
       {"model.layers.{}.mlp.shared_expert.gate_proj.weight", "model.layers.{}.mlp.shared_expert.up_proj.weight"}},
      {"decoder.layers.mlp.shared_experts.linear_fc2.weight", {"model.layers.{}.mlp.shared_expert.down_proj.weight"}},
      {"decoder.layers.mlp.shared_experts.gate_weight", {"model.layers.{}.mlp.shared_expert_gate.weight"}},
  };
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

/// The inverse of derive_expert_layers.
void restore_expert_layers(const Json& arguments, Json& config) {
  const auto marks = argument_or(arguments, "moe_layer_freq", std::vector<int64_t>{});
  Json dense = Json::array();
  for (size_t layer = 0; layer < marks.size(); ++layer)
    if (marks[layer] == 0) dense.push_back(layer);
  config["decoder_sparse_step"] = 1;
  config["mlp_only_layers"] = std::move(dense);
}

/// Softmax over all experts before the choice, unless the chosen probabilities are divided by their sum: then the order
/// does not matter.
void derive_router(ConfigReader& config, Json& arguments) {
  arguments["moe_router_pre_softmax"] = !config.flag("norm_topk_prob", false);
}

void derive_qwen_moe(ConfigReader& config, Json& arguments, const DecoderDefaults& defaults) {
  derive_decoder(config, arguments, defaults);
  derive_expert_layers(config, arguments, config.integer("num_hidden_layers", defaults.num_hidden_layers));
  derive_router(config, arguments);
}

void restore_qwen_moe(const Json& arguments, Json& config) {
  restore_expert_layers(arguments, config);
  config["norm_topk_prob"] = !argument_or(arguments, "moe_router_pre_softmax", false);
}

/// Families set `derive` and `restore` themselves, for their windows.
Family qwen_moe_family(std::string model_type, std::string architecture, const DecoderDefaults& defaults) {
  Family family = llama_like_family(std::move(model_type), std::move(architecture), defaults);
  // This key decides if transformers returns the router's logits and adds its loss.
  family.without_effect = {"output_router_logits"};
  family.values.push_back({"router_aux_loss_coef", "moe_aux_loss_coeff", 0.001});
  family.tensors = all_of({llama_tensors(), expert_tensors("mlp", {"gate_proj", "up_proj"}, "down_proj")});
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
  Family family = qwen_moe_family("qwen2_moe", "Qwen2MoeForCausalLM", defaults);
  family.arguments["moe_shared_expert_gate"] = true;
  const std::vector<ConfigValue> values = {
      {"moe_intermediate_size", "moe_ffn_hidden_size", 1408},
      {"shared_expert_intermediate_size", "moe_shared_expert_intermediate_size", 5632},
      {"num_experts", "num_experts", 60},
      {"num_experts_per_tok", "moe_router_topk", 4},
      {"qkv_bias", "add_qkv_bias", true}};
  family.values.insert(family.values.end(), values.begin(), values.end());
  family.derive = [defaults](ConfigReader& config, Json& arguments) {
    derive_qwen_moe(config, arguments, defaults);
    derive_qwen_windows(config, arguments, defaults.num_hidden_layers);
  };
  family.restore = [](const Json& arguments, Json& config) {
    restore_qwen(arguments, config);
    restore_qwen_moe(arguments, config);
  };
  family.tensors = all_of({family.tensors, shared_expert_tensors()});
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
  Family family = qwen_moe_family("qwen3_moe", "Qwen3MoeForCausalLM", defaults);
  // Keys after the first say in Qwen 3 Coder what holds for every model of the family.
  const std::vector<ConfigChoice> choices = {{"attention_bias", {false}},
                                             {"qkv_bias", {false}, Written::kNever},
                                             {"use_qk_norm", {true}, Written::kNever},
                                             {"shared_expert_intermediate_size", {0}, Written::kNever}};
  family.choices.insert(family.choices.end(), choices.begin(), choices.end());
  family.arguments["qk_layernorm"] = true;
  family.values.push_back({"moe_intermediate_size", "moe_ffn_hidden_size", 768});
  family.values.push_back({"num_experts_per_tok", "moe_router_topk", 8});
  family.derive = [defaults](ConfigReader& config, Json& arguments) {
    derive_qwen_moe(config, arguments, defaults);
    // The window is that of all layers, whatever max_window_layers says.
    config.at("max_window_layers");
    const int64_t window = config.integer("sliding_window", 4096);
    set_sliding_window(arguments, config.flag("use_sliding_window", false) ? window : 0);
    // transformers 5 writes num_local_experts.
    arguments["num_experts"] = config.integer("num_experts", config.integer("num_local_experts", 128));
  };
  family.restore = [](const Json& arguments, Json& config) {
    restore_decoder(arguments, config);
    restore_qwen_moe(arguments, config);
    restore_sliding_window(arguments, config);
    config["use_sliding_window"] = !config["sliding_window"].is_null();
    config["num_experts"] = arguments.at("num_experts");
  };
  family.tensors = all_of({family.tensors, query_key_norm_tensors()});
  return family;
}

}  // namespace megatron::hugging_face
