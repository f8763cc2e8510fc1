// Gemma 2 and 3: norms with (1 + weight) around the blocks, GeGLU, embeddings times the square root of the hidden size,
// a sliding window in most layers. Gemma 2 has soft caps; Gemma 3 norms of queries and keys, and two rotary bases.
#include "megatron/models/hugging_face/gemma.h"

#include <cmath>

#include "megatron/models/hugging_face/llama.h"

namespace megatron::hugging_face {
namespace {

constexpr double kLocalTheta = 10000;

DecoderDefaults gemma_defaults(int64_t vocab_size, int64_t max_position_embeddings, double rope_theta) {
  return {.vocab_size = vocab_size,
          .hidden_size = 2304,
          .intermediate_size = 9216,
          .num_hidden_layers = 26,
          .num_attention_heads = 8,
          .num_key_value_heads = 4,
          .head_dim = 256,
          .max_position_embeddings = max_position_embeddings,
          .rope_theta = rope_theta,
          .tie_word_embeddings = true};
}

/// A soft cap is off where its key is null, and has its default where the key is missing.
void derive_soft_cap(ConfigReader& config, Json& arguments, std::string_view key, double otherwise) {
  if (const double cap = config.number(key, config.names(key) ? 0 : otherwise); cap != 0)
    arguments[std::string(key)] = cap;
}

/// @param interval  every layer whose number, from 1, it divides sees the whole sequence, where layer_types is missing
void derive_gemma(ConfigReader& config, Json& arguments, const DecoderDefaults& defaults, int64_t interval) {
  const auto hidden = static_cast<double>(config.integer("hidden_size", defaults.hidden_size));
  arguments["embedding_multiplier"] = std::sqrt(hidden);
  arguments["softmax_scale"] = 1 / std::sqrt(config.number("query_pre_attn_scalar", 256));
  std::vector<bool> is_sliding(static_cast<size_t>(config.integer("num_hidden_layers", defaults.num_hidden_layers)));
  for (size_t layer = 0; layer < is_sliding.size(); ++layer)
    is_sliding[layer] = interval <= 0 || (static_cast<int64_t>(layer) + 1) % interval != 0;
  read_layer_types(config, is_sliding);
  set_sliding_layers(arguments, config.integer("sliding_window", 4096), is_sliding);
}

/// The inverse of derive_gemma and derive_soft_cap. The multiplier of the embedding follows from its width.
void restore_gemma(const Json& arguments, Json& config) {
  const double scale = argument_or(arguments, "softmax_scale", 1.0);
  config["query_pre_attn_scalar"] = snapped(1 / (scale * scale));
  restore_sliding_layers(arguments, config);
  for (const char* key : {"attn_logit_softcapping", "final_logit_softcapping"})
    config[key] = argument_or(arguments, key, Json());
}

Family gemma_family(std::string model_type, std::string architecture, const DecoderDefaults& defaults) {
  Family family = llama_like_family(std::move(model_type), std::move(architecture), defaults);
  family.arguments = {{"normalization", "RMSNorm"},        {"layernorm_zero_centered_gamma", true},
                      {"layernorm_placement", "sandwich"}, {"geglu", true},
                      {"add_bias_linear", false},          {"hidden_dropout", 0.0}};
  family.choices = {{"hidden_activation", {"gelu_pytorch_tanh"}},
                    {"attention_bias", {false}},
                    {"use_bidirectional_attention", {false}}};
  // hidden_act is an older name that hidden_activation overrides, sliding_window_size repeats sliding_window, and the
  // other key is how transformers caches.
  family.without_effect = {"hidden_act", "sliding_window_size", "cache_implementation"};
  family.tensors =
      all_of({llama_outer_tensors(), llama_attention_tensors(), post_norm_tensors(),
              feed_forward_tensors({"mlp.gate_proj", "mlp.up_proj"}, "mlp.down_proj", "pre_feedforward_layernorm")});
  return family;
}

/// rope_parameters of transformers 5 has an object for each kind of layer.
void derive_rope_of_kinds(ConfigReader& config, Json& arguments, const Json& kinds, const DecoderDefaults& defaults) {
  const auto of_kind = [&](const char* kind) {
    return kinds.contains(kind) && kinds[kind].is_object() ? kinds[kind] : Json::object();
  };
  const Json local = of_kind("sliding_attention");
  // The keys of transformers 4 beside it stand for what rope_parameters leaves out.
  const Json whole = {
      {"rope_parameters", of_kind("full_attention")},
      {"rope_scaling", config.at("rope_scaling")},
      {"rope_theta", config.at("rope_theta")},
      {"max_position_embeddings", config.integer("max_position_embeddings", defaults.max_position_embeddings)}};
  ConfigReader of_whole(whole), of_local(local);
  derive_rope(of_whole, arguments, defaults.rope_theta);
  arguments["sliding_window_rotary_base"] =
      of_local.integer_number("rope_theta", config.number("rope_local_base_freq", kLocalTheta));
  if (of_local.text("rope_type", "default") != "default")
    of_local.reject("rope_type of sliding_attention is {}; supported: default", local["rope_type"].dump());
  for (const std::string& key : of_local.unread())
    of_local.reject("{} of sliding_attention is {}, an unknown setting", key, local[key].dump());
  for (const ConfigReader* reader : {&of_whole, &of_local})
    for (const std::string& mistake : reader->mistakes()) config.reject("{}", mistake);
}

/// The inverse of derive_gemma3_rope.
void restore_gemma3_rope(const Json& arguments, Json& config) {
  restore_rope(arguments, config);
  const double local = argument_or(arguments, "sliding_window_rotary_base", kLocalTheta);
  config["rope_local_base_freq"] = local;
  config["rope_parameters"] = {{"full_attention", config["rope_parameters"]},
                               {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", local}}}};
}

/// The rotary base of layers with the window, without scaling, and that of the others.
void derive_gemma3_rope(ConfigReader& config, Json& arguments, const DecoderDefaults& defaults) {
  const Json kinds = config.at("rope_parameters");
  if (kinds.is_object() && (kinds.contains("full_attention") || kinds.contains("sliding_attention"))) {
    derive_rope_of_kinds(config, arguments, kinds, defaults);
  } else {
    derive_rope(config, arguments, defaults.rope_theta);
    arguments["sliding_window_rotary_base"] = config.integer_number("rope_local_base_freq", kLocalTheta);
  }
  if (!arguments.contains("window_size")) arguments.erase("sliding_window_rotary_base");
}

}  // namespace

Family gemma2_family() {
  const DecoderDefaults defaults = gemma_defaults(256000, 8192, 10000);
  Family family = gemma_family("gemma2", "Gemma2ForCausalLM", defaults);
  family.derive = [defaults](ConfigReader& config, Json& arguments) {
    derive_decoder(config, arguments, defaults);
    derive_gemma(config, arguments, defaults, 2);
    derive_soft_cap(config, arguments, "attn_logit_softcapping", 50);
    derive_soft_cap(config, arguments, "final_logit_softcapping", 30);
  };
  family.restore = [](const Json& arguments, Json& config) {
    restore_decoder(arguments, config);
    restore_gemma(arguments, config);
  };
  return family;
}

Family gemma3_text_family() {
  const DecoderDefaults defaults = gemma_defaults(262208, 131072, 1000000);
  Family family = gemma_family("gemma3_text", "Gemma3ForCausalLM", defaults);
  family.arguments["qk_layernorm"] = true;
  family.derive = [defaults](ConfigReader& config, Json& arguments) {
    derive_heads(config, arguments, defaults);
    derive_tied_embeddings(config, arguments, defaults.tie_word_embeddings);
    const int64_t interval = config.integer("_sliding_window_pattern", 6);  // the name that transformers 5 writes
    derive_gemma(config, arguments, defaults, config.integer("sliding_window_pattern", interval));
    derive_gemma3_rope(config, arguments, defaults);
    derive_soft_cap(config, arguments, "attn_logit_softcapping", 0);
    derive_soft_cap(config, arguments, "final_logit_softcapping", 0);
  };
  family.restore = [](const Json& arguments, Json& config) {
    restore_heads(arguments, config);
    restore_tied_embeddings(arguments, config);
    restore_gemma(arguments, config);
    restore_gemma3_rope(arguments, config);
  };
  family.tensors = all_of({family.tensors, query_key_norm_tensors()});
  return family;
}

}  // namespace megatron::hugging_face
