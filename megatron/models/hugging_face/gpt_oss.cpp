// GPT-OSS: experts with biases and a clamped gate, attention sinks, a window in every other layer. One tensor has the
// matrices of all experts, stored [in, out], with columns of gate and up in turns.
#include "megatron/models/hugging_face/gpt_oss.h"

#include "megatron/models/hugging_face/llama.h"

namespace megatron::hugging_face {
namespace {

constexpr int64_t kGptOssWindow = 128;
constexpr DecoderDefaults kGptOssDefaults{.vocab_size = 201088,
                                          .hidden_size = 2880,
                                          .intermediate_size = 2880,
                                          .num_hidden_layers = 36,
                                          .num_attention_heads = 64,
                                          .num_key_value_heads = 8,
                                          .head_dim = 64,
                                          .max_position_embeddings = 131072,
                                          .norm_epsilon = 1e-5};

std::vector<TensorRule> gpt_oss_tensors() {
  constexpr bool kTransposed = true, kStacksExperts = true;
  std::vector<TensorRule> rules = llama_outer_tensors();
  for (TensorRule& rule : llama_attention_tensors()) rules.push_back(std::move(rule));
  const std::vector<TensorRule> layer = {
      {"decoder.layers.self_attention.core_attention.softmax_offset", {"model.layers.{}.self_attn.sinks"}},
      {"decoder.layers.pre_mlp_layernorm.weight", {"model.layers.{}.post_attention_layernorm.weight"}},
      {"decoder.layers.mlp.router.weight", {"model.layers.{}.mlp.router.weight"}},
      {"decoder.layers.mlp.router.bias", {"model.layers.{}.mlp.router.bias"}},
      {"decoder.layers.mlp.experts.experts.linear_fc1.weight",
       {"model.layers.{}.mlp.experts.gate_up_proj"},
       Arrangement::kGateUp,
       kTransposed,
       kStacksExperts},
      {"decoder.layers.mlp.experts.experts.linear_fc1.bias",
       {"model.layers.{}.mlp.experts.gate_up_proj_bias"},
       Arrangement::kGateUp,
       !kTransposed,
       kStacksExperts},
      {"decoder.layers.mlp.experts.experts.linear_fc2.weight",
       {"model.layers.{}.mlp.experts.down_proj"},
       Arrangement::kStacked,
       kTransposed,
       kStacksExperts},
      {"decoder.layers.mlp.experts.experts.linear_fc2.bias",
       {"model.layers.{}.mlp.experts.down_proj_bias"},
       Arrangement::kStacked,
       !kTransposed,
       kStacksExperts},
  };
  rules.insert(rules.end(), layer.begin(), layer.end());
  return rules;
}

/// layer_types says which layers have the window; without it every other one from the first on.
void derive_windows(ConfigReader& config, Json& arguments) {
  const auto num_layers = static_cast<size_t>(config.integer("num_hidden_layers", kGptOssDefaults.num_hidden_layers));
  std::vector<bool> is_sliding(num_layers);
  for (size_t layer = 0; layer < num_layers; ++layer) is_sliding[layer] = layer % 2 == 0;
  read_layer_types(config, is_sliding);
  set_sliding_layers(arguments, config.integer("sliding_window", kGptOssWindow), is_sliding);
}

void derive_gpt_oss(ConfigReader& config, Json& arguments) {
  derive_heads(config, arguments, kGptOssDefaults);
  derive_rope(config, arguments, 150000);
  derive_tied_embeddings(config, arguments, false);
  derive_windows(config, arguments);
  arguments["moe_ffn_hidden_size"] = config.integer("intermediate_size", kGptOssDefaults.intermediate_size);
}

void restore_gpt_oss(const Json& arguments, Json& config) {
  restore_decoder(arguments, config);
  restore_sliding_layers(arguments, config);
  config["intermediate_size"] = argument_or(arguments, "moe_ffn_hidden_size", Json());
}

}  // namespace

Family gpt_oss_family() {
  Family family{.model_type = "gpt_oss",
                .architecture = "GptOssForCausalLM",
                .arguments = {{"normalization", "RMSNorm"},
                              {"quick_geglu", true},
                              {"glu_linear_offset", 1.0},
                              {"add_bias_linear", true},
                              {"hidden_dropout", 0.0},
                              {"softmax_type", "learnable"}},
                .values = decoder_values(kGptOssDefaults),
                .choices = {{"hidden_act", {"silu"}}, {"attention_bias", {true}}, {"swiglu_alpha", {1.702}}},
                // Repetitions, and what transformers returns.
                .without_effect = {"experts_per_token", "initial_context_length", "output_router_logits"},
                .derive = derive_gpt_oss,
                .restore = restore_gpt_oss,
                .tensors = gpt_oss_tensors(),
                .ignored_tensors = {}};
  const std::vector<ConfigValue> values = {{"num_local_experts", "num_experts", 128},
                                           {"num_experts_per_tok", "moe_router_topk", 4},
                                           {"swiglu_limit", "activation_func_clamp_value", 7.0},
                                           {"router_aux_loss_coef", "moe_aux_loss_coeff", 0.001}};
  family.values.insert(family.values.end(), values.begin(), values.end());
  return family;
}

}  // namespace megatron::hugging_face
