// StarCoder 2: LayerNorm, biases of all linear layers, GELU in its tanh form, rotary positions, a sliding window.
#include "megatron/models/hugging_face/starcoder2.h"

#include "megatron/models/hugging_face/llama.h"

namespace megatron::hugging_face {
namespace {

constexpr DecoderDefaults kStarcoder2Defaults{.vocab_size = 49152,
                                              .hidden_size = 3072,
                                              .intermediate_size = 12288,
                                              .num_hidden_layers = 30,
                                              .num_attention_heads = 24,
                                              .num_key_value_heads = 2,
                                              .max_position_embeddings = 4096,
                                              .norm_key = "norm_epsilon",
                                              .norm_epsilon = 1e-5,
                                              .tie_word_embeddings = true};

void derive_starcoder2(ConfigReader& config, Json& arguments) {
  derive_decoder(config, arguments, kStarcoder2Defaults);
  set_sliding_window(arguments, config.integer("sliding_window", 0));
  const bool has_biases = config.flag("use_bias", true);
  arguments["add_bias_linear"] = has_biases;
  if (!has_biases) arguments["openai_gelu"] = true;  // with biases the tanh form is the default
  derive_hidden_dropout(config, arguments, "residual_dropout", "embedding_dropout", 0);
}

void restore_starcoder2(const Json& arguments, Json& config) {
  restore_decoder(arguments, config);
  restore_sliding_window(arguments, config);
  config["use_bias"] = argument_or(arguments, "add_bias_linear", true);
  restore_hidden_dropout(arguments, config, "residual_dropout", "embedding_dropout");
}

}  // namespace

Family starcoder2_family() {
  return {.model_type = "starcoder2",
          .architecture = "Starcoder2ForCausalLM",
          .arguments = {{"normalization", "LayerNorm"}},
          .values = decoder_values(kStarcoder2Defaults),
          .choices = {{"hidden_act", {"gelu_pytorch_tanh"}},
                      {"mlp_type", {"default"}, Written::kNever},
                      {"norm_type", {"layer_norm"}, Written::kNever}},
          // Keys of the first StarCoder, a GPT-2, that the published files still have.
          .without_effect = {"activation_function", "layer_norm_epsilon", "attention_softmax_in_fp32",
                             "scale_attention_softmax_in_fp32", "scale_attn_weights"},
          .derive = derive_starcoder2,
          .restore = restore_starcoder2,
          .tensors = all_of(
              {llama_outer_tensors(), llama_attention_tensors(), feed_forward_tensors({"mlp.c_fc"}, "mlp.c_proj")}),
          .ignored_tensors = {".rotary_emb.inv_freq"}};
}

}  // namespace megatron::hugging_face
