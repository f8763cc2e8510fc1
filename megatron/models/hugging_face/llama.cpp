// Llama 1 to 3 and Mistral.
#include "megatron/models/hugging_face/llama.h"

namespace megatron::hugging_face {
namespace {

/// The window of a Mistral whose config.json does not have the key.
constexpr int64_t kMistralWindow = 4096;

std::string in_layer(const std::string& name) { return "model.layers.{}." + name; }

}  // namespace

std::vector<TensorRule> llama_attention_tensors() {
  return {
      {"decoder.layers.self_attention.linear_qkv.layer_norm_weight", {"model.layers.{}.input_layernorm.weight"}},
      {"decoder.layers.self_attention.linear_qkv.layer_norm_bias", {"model.layers.{}.input_layernorm.bias"}},
      {"decoder.layers.self_attention.linear_qkv.weight",
       {"model.layers.{}.self_attn.q_proj.weight", "model.layers.{}.self_attn.k_proj.weight",
        "model.layers.{}.self_attn.v_proj.weight"},
       Arrangement::kQkv},
      {"decoder.layers.self_attention.linear_qkv.bias",
       {"model.layers.{}.self_attn.q_proj.bias", "model.layers.{}.self_attn.k_proj.bias",
        "model.layers.{}.self_attn.v_proj.bias"},
       Arrangement::kQkv},
      {"decoder.layers.self_attention.linear_proj.weight", {"model.layers.{}.self_attn.o_proj.weight"}},
      {"decoder.layers.self_attention.linear_proj.bias", {"model.layers.{}.self_attn.o_proj.bias"}},
  };
}

std::vector<TensorRule> llama_outer_tensors() {
  return {
      {"embedding.word_embeddings.weight", {"model.embed_tokens.weight"}},
      {"decoder.final_layernorm.weight", {"model.norm.weight"}},
      {"decoder.final_layernorm.bias", {"model.norm.bias"}},
      {"output_layer.weight", {"lm_head.weight"}},
  };
}

std::vector<TensorRule> feed_forward_tensors(const std::vector<std::string>& up, const std::string& down,
                                             const std::string& norm) {
  std::vector<std::string> weights, biases;
  for (const std::string& name : up) {
    weights.push_back(in_layer(name + ".weight"));
    biases.push_back(in_layer(name + ".bias"));
  }
  return {
      {"decoder.layers.mlp.linear_fc1.layer_norm_weight", {in_layer(norm + ".weight")}},
      {"decoder.layers.mlp.linear_fc1.layer_norm_bias", {in_layer(norm + ".bias")}},
      {"decoder.layers.mlp.linear_fc1.weight", std::move(weights)},
      {"decoder.layers.mlp.linear_fc1.bias", std::move(biases)},
      {"decoder.layers.mlp.linear_fc2.weight", {in_layer(down + ".weight")}},
      {"decoder.layers.mlp.linear_fc2.bias", {in_layer(down + ".bias")}},
  };
}

std::vector<TensorRule> expert_tensors(const std::string& module, const std::vector<std::string>& up,
                                       const std::string& down) {
  const auto of_expert = [&](const std::string& name) { return in_layer(module + ".experts.{}." + name + ".weight"); };
  std::vector<std::string> weights;
  weights.reserve(up.size());
  for (const std::string& name : up) weights.push_back(of_expert(name));
  return {
      {"decoder.layers.pre_mlp_layernorm.weight", {in_layer("post_attention_layernorm.weight")}},
      {"decoder.layers.mlp.router.weight", {in_layer(module + ".gate.weight")}},
      {"decoder.layers.mlp.experts.experts.linear_fc1.weight", std::move(weights)},
      {"decoder.layers.mlp.experts.experts.linear_fc2.weight", {of_expert(down)}},
  };
}

std::vector<TensorRule> post_norm_tensors() {
  return {
      {"decoder.layers.self_attention.linear_proj.post_layernorm.weight",
       {in_layer("post_attention_layernorm.weight")}},
      {"decoder.layers.mlp.linear_fc2.post_layernorm.weight", {in_layer("post_feedforward_layernorm.weight")}},
  };
}

std::vector<TensorRule> query_key_norm_tensors() {
  return {
      {"decoder.layers.self_attention.q_layernorm.weight", {in_layer("self_attn.q_norm.weight")}},
      {"decoder.layers.self_attention.k_layernorm.weight", {in_layer("self_attn.k_norm.weight")}},
  };
}

std::vector<TensorRule> all_of(std::initializer_list<std::vector<TensorRule>> tables) {
  std::vector<TensorRule> rules;
  for (const std::vector<TensorRule>& table : tables) rules.insert(rules.end(), table.begin(), table.end());
  return rules;
}

std::vector<TensorRule> llama_tensors() {
  return all_of({llama_outer_tensors(), llama_attention_tensors(),
                 feed_forward_tensors({"mlp.gate_proj", "mlp.up_proj"}, "mlp.down_proj")});
}

std::vector<ConfigValue> decoder_values(const DecoderDefaults& defaults) {
  return {
      {"hidden_size", "hidden_size", defaults.hidden_size},
      {"intermediate_size", "ffn_hidden_size", defaults.intermediate_size},
      {"num_hidden_layers", "num_layers", defaults.num_hidden_layers},
      {"num_attention_heads", "num_attention_heads", defaults.num_attention_heads},
      {"max_position_embeddings", "max_position_embeddings", defaults.max_position_embeddings},
      {"vocab_size", "vocab_size", defaults.vocab_size},
      {"initializer_range", "init_method_std", 0.02},
      {"attention_dropout", "attention_dropout", 0.0},
      {std::string(defaults.norm_key), "layernorm_epsilon", defaults.norm_epsilon},
  };
}

void derive_decoder(ConfigReader& config, Json& arguments, const DecoderDefaults& defaults) {
  derive_heads(config, arguments, defaults);
  derive_rope(config, arguments, defaults.rope_theta);
  derive_tied_embeddings(config, arguments, defaults.tie_word_embeddings);
}

void restore_decoder(const Json& arguments, Json& config) {
  restore_heads(arguments, config);
  restore_rope(arguments, config);
  restore_tied_embeddings(arguments, config);
}

void derive_heads(ConfigReader& config, Json& arguments, const DecoderDefaults& defaults) {
  const int64_t heads = config.integer("num_attention_heads", defaults.num_attention_heads);
  const int64_t hidden = config.integer("hidden_size", defaults.hidden_size);
  const int64_t groups =
      config.integer("num_key_value_heads", defaults.num_key_value_heads > 0 ? defaults.num_key_value_heads : heads);
  arguments["group_query_attention"] = groups != heads;
  arguments["num_query_groups"] = groups;
  if (heads > 0)
    arguments["kv_channels"] = config.integer("head_dim", defaults.head_dim > 0 ? defaults.head_dim : hidden / heads);
}

void restore_heads(const Json& arguments, Json& config) {
  config["num_key_value_heads"] = arguments.at("num_query_groups");
  config["head_dim"] = arguments.at("kv_channels");
}

void derive_hidden_dropout(ConfigReader& config, Json& arguments, std::string_view residual_key,
                           std::string_view embedding_key, double otherwise) {
  const double residual = config.number(residual_key, otherwise), embedding = config.number(embedding_key, otherwise);
  if (residual != embedding)
    config.reject("{} is {} and {} is {}; supported: one rate for both", residual_key, residual, embedding_key,
                  embedding);
  arguments["hidden_dropout"] = residual;
}

void restore_hidden_dropout(const Json& arguments, Json& config, const std::string& residual_key,
                            const std::string& embedding_key) {
  config[residual_key] = config[embedding_key] = argument_or(arguments, "hidden_dropout", 0.0);
}

Json llama_arguments() {
  return {{"normalization", "RMSNorm"},
          {"swiglu", true},
          {"add_bias_linear", false},
          {"hidden_dropout", 0.0},
          {"layernorm_epsilon", 1e-6}};
}

void derive_linear_biases(ConfigReader& config, Json& arguments) {
  const bool attention = config.flag("attention_bias", false), mlp = config.flag("mlp_bias", false);
  if (attention != mlp)
    config.reject("attention_bias is {} and mlp_bias is {}; supported: both true or both false", attention, mlp);
  arguments["add_bias_linear"] = attention && mlp;
}

void restore_linear_biases(const Json& arguments, Json& config) {
  config["attention_bias"] = config["mlp_bias"] = argument_or(arguments, "add_bias_linear", false);
}

Family llama_like_family(std::string model_type, std::string architecture, const DecoderDefaults& defaults) {
  return {.model_type = std::move(model_type),
          .architecture = std::move(architecture),
          .arguments = llama_arguments(),
          .values = decoder_values(defaults),
          .choices = {{"hidden_act", {"silu"}}},
          .without_effect = {},
          .derive = [defaults](ConfigReader& config, Json& arguments) { derive_decoder(config, arguments, defaults); },
          .restore = restore_decoder,
          .tensors = llama_tensors(),
          .ignored_tensors = {".rotary_emb.inv_freq"}};
}

Family llama_family() {
  const DecoderDefaults defaults{.vocab_size = 32000,
                                 .hidden_size = 4096,
                                 .intermediate_size = 11008,
                                 .num_hidden_layers = 32,
                                 .num_attention_heads = 32,
                                 .max_position_embeddings = 2048};
  Family family = llama_like_family("llama", "LlamaForCausalLM", defaults);
  // Keys of Llama 1's first conversions, of SmolLM 2 and of Falcon 3, which transformers does not read.
  family.without_effect = {"max_sequence_length", "is_llama_config"};
  family.choices.push_back({"rope_interleaved", {false}, Written::kNever});
  family.choices.push_back({"activation", {"swiglu"}, Written::kNever});
  family.derive = [defaults](ConfigReader& config, Json& arguments) {
    derive_decoder(config, arguments, defaults);
    derive_linear_biases(config, arguments);
  };
  family.restore = [](const Json& arguments, Json& config) {
    restore_decoder(arguments, config);
    restore_linear_biases(arguments, config);
  };
  return family;
}

Family mistral_family() {
  const DecoderDefaults defaults{.vocab_size = 32000,
                                 .hidden_size = 4096,
                                 .intermediate_size = 14336,
                                 .num_hidden_layers = 32,
                                 .num_attention_heads = 32,
                                 .num_key_value_heads = 8,
                                 .max_position_embeddings = 131072};
  Family family = llama_like_family("mistral", "MistralForCausalLM", defaults);
  family.derive = [defaults](ConfigReader& config, Json& arguments) {
    derive_decoder(config, arguments, defaults);
    // null, which differs from a missing key, stands for no window.
    set_sliding_window(arguments,
                       config.integer("sliding_window", config.names("sliding_window") ? 0 : kMistralWindow));
  };
  family.restore = [](const Json& arguments, Json& config) {
    restore_decoder(arguments, config);
    restore_sliding_window(arguments, config);
  };
  return family;
}

}  // namespace megatron::hugging_face
