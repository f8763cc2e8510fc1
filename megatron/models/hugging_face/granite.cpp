// Granite 3: Llama with multipliers of embeddings, scores, blocks and logits.
#include "megatron/models/hugging_face/granite.h"

#include "megatron/models/hugging_face/llama.h"

namespace megatron::hugging_face {

Family granite_family() {
  const DecoderDefaults defaults{.vocab_size = 32000,
                                 .hidden_size = 4096,
                                 .intermediate_size = 11008,
                                 .num_hidden_layers = 32,
                                 .num_attention_heads = 32,
                                 .max_position_embeddings = 2048};
  Family family = llama_like_family("granite", "GraniteForCausalLM", defaults);
  family.choices.push_back({"attention_bias", {false}});
  family.choices.push_back({"mlp_bias", {false}});
  const std::vector<ConfigValue> multipliers = {{"embedding_multiplier", "embedding_multiplier", 1.0},
                                                {"attention_multiplier", "softmax_scale", 1.0},
                                                {"residual_multiplier", "residual_multiplier", 1.0}};
  family.values.insert(family.values.end(), multipliers.begin(), multipliers.end());
  family.derive = [defaults](ConfigReader& config, Json& arguments) {
    derive_decoder(config, arguments, defaults);
    arguments["logits_multiplier"] = 1 / config.number("logits_scaling", 1);
  };
  family.restore = [](const Json& arguments, Json& config) {
    restore_decoder(arguments, config);
    config["logits_scaling"] = snapped(1 / argument_or(arguments, "logits_multiplier", 1.0));
  };
  return family;
}

}  // namespace megatron::hugging_face
