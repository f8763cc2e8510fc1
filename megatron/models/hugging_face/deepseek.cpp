// DeepSeek V2 and V3: latent attention, and experts with shared ones in all layers but the first.
#include "megatron/models/hugging_face/deepseek.h"

#include <algorithm>

#include "megatron/models/hugging_face/llama.h"

namespace megatron::hugging_face {
namespace {

constexpr double kLatentNormEpsilon = 1e-6;

/// The values that transformers takes for missing keys.
struct DeepseekDefaults {
  DecoderDefaults decoder;
  int64_t num_experts = 0, experts_per_token = 0, num_shared_experts = 0, expert_ffn_size = 0, num_dense_layers = 0;
  int64_t num_groups = 0, groups_per_token = 0;
  double scaling_factor = 1;
};

void append_attention_tensors(std::vector<TensorRule>& rules) {
  const std::vector<TensorRule> attention = {
      {"decoder.layers.input_layernorm.weight", {"model.layers.{}.input_layernorm.weight"}},
      {"decoder.layers.self_attention.linear_q_proj.weight", {"model.layers.{}.self_attn.q_proj.weight"}},
      {"decoder.layers.self_attention.linear_q_down_proj.weight", {"model.layers.{}.self_attn.q_a_proj.weight"}},
      {"decoder.layers.self_attention.linear_q_up_proj.layer_norm_weight",
       {"model.layers.{}.self_attn.q_a_layernorm.weight"}},
      {"decoder.layers.self_attention.linear_q_up_proj.weight", {"model.layers.{}.self_attn.q_b_proj.weight"}},
      {"decoder.layers.self_attention.linear_kv_down_proj.weight",
       {"model.layers.{}.self_attn.kv_a_proj_with_mqa.weight"}},
      {"decoder.layers.self_attention.linear_kv_up_proj.layer_norm_weight",
       {"model.layers.{}.self_attn.kv_a_layernorm.weight"}},
      {"decoder.layers.self_attention.linear_kv_up_proj.weight", {"model.layers.{}.self_attn.kv_b_proj.weight"}},
      {"decoder.layers.self_attention.linear_proj.weight", {"model.layers.{}.self_attn.o_proj.weight"}},
  };
  rules.insert(rules.end(), attention.begin(), attention.end());
}

void append_feed_forward_tensors(std::vector<TensorRule>& rules) {
  const std::string norm = "model.layers.{}.post_attention_layernorm.weight";
  const std::vector<TensorRule> feed_forward = {
      {"decoder.layers.mlp.linear_fc1.layer_norm_weight", {norm}},
      {"decoder.layers.pre_mlp_layernorm.weight", {norm}},
      {"decoder.layers.mlp.linear_fc1.weight",
       {"model.layers.{}.mlp.gate_proj.weight", "model.layers.{}.mlp.up_proj.weight"}},
      {"decoder.layers.mlp.linear_fc2.weight", {"model.layers.{}.mlp.down_proj.weight"}},
      {"decoder.layers.mlp.router.weight", {"model.layers.{}.mlp.gate.weight"}},
      {"decoder.layers.mlp.router.expert_bias", {"model.layers.{}.mlp.gate.e_score_correction_bias"}},
      {"decoder.layers.mlp.experts.experts.linear_fc1.weight",
       {"model.layers.{}.mlp.experts.{}.gate_proj.weight", "model.layers.{}.mlp.experts.{}.up_proj.weight"}},
      {"decoder.layers.mlp.experts.experts.linear_fc2.weight", {"model.layers.{}.mlp.experts.{}.down_proj.weight"}},
      {"decoder.layers.mlp.shared_experts.linear_fc1.weight",
       {"model.layers.{}.mlp.shared_experts.gate_proj.weight", "model.layers.{}.mlp.shared_experts.up_proj.weight"}},
      {"decoder.layers.mlp.shared_experts.linear_fc2.weight", {"model.layers.{}.mlp.shared_experts.down_proj.weight"}},
  };
  rules.insert(rules.end(), feed_forward.begin(), feed_forward.end());
}

/// Layers that predict further tokens: they follow those of the decoder, and repeat embedding and output layer.
void append_further_tensors(Family& family) {
  const std::vector<TensorRule> further = {
      {"mtp.layers.enorm.weight", {"model.layers.{}.enorm.weight"}},
      {"mtp.layers.hnorm.weight", {"model.layers.{}.hnorm.weight"}},
      {std::string(kFurtherProjection), {"model.layers.{}.eh_proj.weight"}},
      {"mtp.layers.final_layernorm.weight", {"model.layers.{}.shared_head.norm.weight"}},
  };
  family.tensors.insert(family.tensors.end(), further.begin(), further.end());
  family.further_copies = {{"model.layers.{}.embed_tokens.weight", "model.embed_tokens.weight"},
                           {"model.layers.{}.shared_head.head.weight", "lm_head.weight"}};
}

/// Sizes of the heads. What config.json calls head_dim and qk_head_dim repeats them.
void derive_latent_attention(ConfigReader& config, Json& arguments, const DecoderDefaults& defaults) {
  const int64_t heads = config.integer("num_attention_heads", defaults.num_attention_heads);
  const int64_t groups = config.integer("num_key_value_heads", heads);
  if (groups != heads)
    config.reject("num_key_value_heads is {} and num_attention_heads {}; supported: as many of both", groups, heads);
  arguments["kv_channels"] = arguments["qk_head_dim"];
  // transformers has this epsilon in the norms of latent vectors whatever config.json says; Megatron has one for all.
  const double epsilon = config.number("rms_norm_eps", kLatentNormEpsilon);
  if (epsilon != kLatentNormEpsilon)
    config.reject("rms_norm_eps is {}; supported: {}, which the norms of latent vectors have", epsilon,
                  kLatentNormEpsilon);
  // null, which differs from a missing key, stands for queries without a latent vector.
  if (!config.names("q_lora_rank") || config.has("q_lora_rank"))
    arguments["q_lora_rank"] = config.integer("q_lora_rank", 1536);
}

void derive_experts(ConfigReader& config, Json& arguments, const DeepseekDefaults& defaults) {
  const int64_t width = config.integer("moe_intermediate_size", defaults.expert_ffn_size);
  const int64_t num_shared = config.integer("n_shared_experts", defaults.num_shared_experts);
  arguments["moe_ffn_hidden_size"] = width;
  if (num_shared > 0) arguments["moe_shared_expert_intermediate_size"] = num_shared * width;
  const int64_t num_dense = config.integer("first_k_dense_replace", defaults.num_dense_layers);
  if (num_dense > 0) {
    Json marks = Json::array();
    for (int64_t layer = 0; layer < config.integer("num_hidden_layers", defaults.decoder.num_hidden_layers); ++layer)
      marks.push_back(layer < num_dense ? 0 : 1);
    arguments["moe_layer_freq"] = std::move(marks);
  }
  const double loss = config.number("aux_loss_alpha", 0);
  if (config.flag("seq_aux", true)) arguments["moe_router_load_balancing_type"] = "seq_aux_loss";
  arguments["moe_aux_loss_coeff"] = loss;
}

/// @param num_scored  largest scores of a group that are added up to choose groups
void derive_groups(ConfigReader& config, Json& arguments, const DeepseekDefaults& defaults, int64_t num_scored) {
  const int64_t groups = config.integer("n_group", defaults.num_groups);
  const int64_t chosen = config.integer("topk_group", defaults.groups_per_token);
  if (groups <= 1) return;
  arguments["moe_router_num_groups"] = groups;
  arguments["moe_router_group_topk"] = chosen;
  arguments["moe_router_group_score_topk"] = num_scored;
}

/// The inverse of derive_latent_attention.
void restore_latent_attention(const Json& arguments, Json& config) {
  config["num_key_value_heads"] = arguments.at("num_attention_heads");
  config["q_lora_rank"] = argument_or(arguments, "q_lora_rank", Json());
}

/// The inverse of derive_experts.
void restore_experts(const Json& arguments, Json& config) {
  const auto width = argument_or<int64_t>(arguments, "moe_ffn_hidden_size", 0);
  const auto shared = argument_or<int64_t>(arguments, "moe_shared_expert_intermediate_size", 0);
  config["moe_intermediate_size"] = width;
  config["n_shared_experts"] = width > 0 ? shared / width : 0;
  const auto marks = argument_or(arguments, "moe_layer_freq", std::vector<int64_t>{});
  const auto first = std::ranges::find(marks, 1);
  config["first_k_dense_replace"] = first - marks.begin();
}

/// The inverse of derive_groups.
void restore_groups(const Json& arguments, Json& config) {
  config["n_group"] = argument_or<int64_t>(arguments, "moe_router_num_groups", 1);
  config["topk_group"] = argument_or<int64_t>(arguments, "moe_router_group_topk", 1);
}

void restore_deepseek(const Json& arguments, Json& config) {
  restore_latent_attention(arguments, config);
  restore_latent_rope(arguments, config);
  restore_tied_embeddings(arguments, config);
  restore_experts(arguments, config);
  restore_groups(arguments, config);
}

Family deepseek_family(const DeepseekDefaults& defaults) {
  Family family{.model_type = {},
                .architecture = {},
                .arguments = llama_arguments(),
                .values = decoder_values(defaults.decoder),
                .choices = {{"hidden_act", {"silu"}},
                            {"attention_bias", {false}},
                            {"mlp_bias", {false}},
                            {"moe_layer_freq", {1}},
                            {"rope_interleave", {true}}},
                // Repetitions of other sizes, the layout of a run, and an option of what transformers returns.
                .without_effect = {"head_dim", "qk_head_dim", "ep_size", "output_router_logits"},
                .derive = {},
                .restore = {},
                .tensors = llama_outer_tensors(),
                .ignored_tensors = {".rotary_emb.inv_freq"}};
  family.arguments["multi_latent_attention"] = true;
  family.arguments["qk_layernorm"] = true;
  const std::vector<ConfigValue> values = {
      {"kv_lora_rank", "kv_lora_rank", 512},
      {"qk_nope_head_dim", "qk_head_dim", 128},
      {"qk_rope_head_dim", "qk_pos_emb_head_dim", 64},
      {"v_head_dim", "v_head_dim", 128},
      {"n_routed_experts", "num_experts", defaults.num_experts},
      {"num_experts_per_tok", "moe_router_topk", defaults.experts_per_token},
      {"routed_scaling_factor", "moe_router_topk_scaling_factor", defaults.scaling_factor}};
  family.values.insert(family.values.end(), values.begin(), values.end());
  append_attention_tensors(family.tensors);
  append_feed_forward_tensors(family.tensors);
  return family;
}

void derive_deepseek(ConfigReader& config, Json& arguments, const DeepseekDefaults& defaults) {
  derive_latent_attention(config, arguments, defaults.decoder);
  derive_latent_rope(config, arguments);
  derive_tied_embeddings(config, arguments, false);
  derive_experts(config, arguments, defaults);
}

}  // namespace

Family deepseek_v2_family() {
  const DeepseekDefaults defaults{.decoder = {.vocab_size = 102400,
                                              .hidden_size = 4096,
                                              .intermediate_size = 11008,
                                              .num_hidden_layers = 32,
                                              .num_attention_heads = 32,
                                              .max_position_embeddings = 2048},
                                  .num_experts = 64,
                                  .num_shared_experts = 2,
                                  .expert_ffn_size = 1407};
  Family family = deepseek_family(defaults);
  family.model_type = "deepseek_v2";
  family.architecture = "DeepseekV2ForCausalLM";
  family.choices.push_back({"scoring_func", {"softmax"}});
  family.choices.push_back({"topk_method", {"greedy", "group_limited_greedy"}});
  // Otherwise the probabilities of the chosen experts would be divided by their sum, but not scaled.
  family.choices.push_back({"norm_topk_prob", {false}});
  family.arguments["moe_router_pre_softmax"] = true;
  family.derive = [defaults](ConfigReader& config, Json& arguments) {
    derive_deepseek(config, arguments, defaults);
    if (!config.has("num_experts_per_tok")) config.reject("num_experts_per_tok is missing");
    const bool has_groups = config.text("topk_method", "greedy") == "group_limited_greedy";
    config.at("n_group");  // has an effect with groups alone
    config.at("topk_group");
    if (has_groups) derive_groups(config, arguments, defaults, 1);
  };
  family.restore = [](const Json& arguments, Json& config) {
    restore_deepseek(arguments, config);
    config["topk_method"] = config["n_group"].get<int64_t>() > 1 ? "group_limited_greedy" : "greedy";
  };
  return family;
}

Family deepseek_v3_family() {
  const DeepseekDefaults defaults{.decoder = {.vocab_size = 129280,
                                              .hidden_size = 7168,
                                              .intermediate_size = 18432,
                                              .num_hidden_layers = 61,
                                              .num_attention_heads = 128,
                                              .max_position_embeddings = 4096},
                                  .num_experts = 256,
                                  .experts_per_token = 8,
                                  .num_shared_experts = 1,
                                  .expert_ffn_size = 2048,
                                  .num_dense_layers = 3,
                                  .num_groups = 8,
                                  .groups_per_token = 4,
                                  .scaling_factor = 2.5};
  Family family = deepseek_family(defaults);
  family.model_type = "deepseek_v3";
  family.architecture = "DeepseekV3ForCausalLM";
  family.choices.push_back({"scoring_func", {"sigmoid"}});
  family.choices.push_back({"topk_method", {"noaux_tc"}});
  family.choices.push_back({"norm_topk_prob", {true}});
  family.num_further_layers = "num_nextn_predict_layers";
  append_further_tensors(family);
  family.arguments["moe_router_score_function"] = "sigmoid";
  family.arguments["moe_router_enable_expert_bias"] = true;
  family.derive = [defaults](ConfigReader& config, Json& arguments) {
    derive_deepseek(config, arguments, defaults);
    derive_groups(config, arguments, defaults, 2);
  };
  family.restore = restore_deepseek;
  return family;
}

}  // namespace megatron::hugging_face
