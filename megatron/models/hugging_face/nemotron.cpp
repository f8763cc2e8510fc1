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
          .derive =
              [](ConfigReader& config, Json& arguments) {
                derive_decoder(config, arguments, kNemotronDefaults);
                derive_linear_biases(config, arguments);
              },
          .restore =
              [](const Json& arguments, Json& config) {
                restore_heads(arguments, config);
                restore_rope(arguments, config, PartialRotation::kSupported);
                restore_tied_embeddings(arguments, config);
                restore_linear_biases(arguments, config);
              },
          .tensors = all_of({llama_outer_tensors(), llama_attention_tensors(),
                             feed_forward_tensors({"mlp.up_proj"}, "mlp.down_proj")}),
          .ignored_tensors = {}};
}

}  // namespace megatron::hugging_face
