// Nemotron: LayerNorm with (1 + weight), squared ReLU, a part of each head rotated.
#include "megatron/models/hugging_face/nemotron.h"

#include "megatron/models/hugging_face/llama.h"

namespace megatron::hugging_face {
namespace {

constexpr DecoderDefaults kNemotronDefaults{.vocab_size = 256000,
                                            .hidden_size = 6144,
                                            .intermediate_size = 24576,
                                            .num_hidden_layers = 32,
                                            .num_attention_heads = 48,
                                            .max_position_embeddings = 4096,
                                            .norm_key = "norm_eps",
                                            .norm_epsilon = 1e-5};

/// Configurations from before transformers had the family give rotary_percent and head_dim names of their own.
void derive_former_names(ConfigReader& config, Json& arguments) {
  for (const char* former : {"rope_percent", "rope_percentage"}) {
    if (!config.has(former)) continue;
    const double percent = config.number(former, 0), own = config.number("partial_rotary_factor", percent);
    if (percent != own)
      config.reject("{} is {} and partial_rotary_factor {}, which is its name now", former, percent, own);
    arguments["rotary_percent"] = percent;
  }
  if (!config.has("kv_channels")) return;
  const int64_t channels = config.integer("kv_channels", 0), own = config.integer("head_dim", channels);
  if (channels != own) config.reject("kv_channels is {} and head_dim {}, which is its name now", channels, own);
}

void derive_nemotron(ConfigReader& config, Json& arguments) {
  derive_former_names(config, arguments);
  DecoderDefaults defaults = kNemotronDefaults;
  defaults.head_dim = config.integer("kv_channels", 0);
  derive_decoder(config, arguments, defaults);
  derive_linear_biases(config, arguments);
}

void restore_nemotron(const Json& arguments, Json& config) {
  restore_heads(arguments, config);
  restore_rope(arguments, config, PartialRotation::kSupported);
  restore_tied_embeddings(arguments, config);
  restore_linear_biases(arguments, config);
}

}  // namespace

Family nemotron_family() {
  return {.model_type = "nemotron",
          .architecture = "NemotronForCausalLM",
          .arguments = {{"normalization", "LayerNorm"},
                        {"layernorm_zero_centered_gamma", true},
                        {"squared_relu", true},
                        {"bias_gelu_fusion", false},
                        {"hidden_dropout", 0.0},
                        {"rotary_percent", 0.5}},
          .values = decoder_values(kNemotronDefaults),
          .choices = {{"hidden_act", {"relu2"}}},
          .without_effect = {},
          .derive = derive_nemotron,
          .restore = restore_nemotron,
          .tensors = all_of({llama_outer_tensors(), llama_attention_tensors(),
                             feed_forward_tensors({"mlp.up_proj"}, "mlp.down_proj")}),
          .ignored_tensors = {".rotary_emb.inv_freq"}};
}

}  // namespace megatron::hugging_face
