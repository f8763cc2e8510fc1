// GPT-2: LayerNorm, learned positions, GELU in its tanh form, matrices stored [in, out].
#include "megatron/models/hugging_face/gpt2.h"

#include "megatron/models/hugging_face/llama.h"

namespace megatron::hugging_face {
namespace {

std::vector<TensorRule> gpt2_tensors() {
  constexpr bool kTransposed = true;
  return {
      {"embedding.word_embeddings.weight", {"transformer.wte.weight"}},
      {"embedding.position_embeddings.weight", {"transformer.wpe.weight"}},
      {"decoder.layers.self_attention.linear_qkv.layer_norm_weight", {"transformer.h.{}.ln_1.weight"}},
      {"decoder.layers.self_attention.linear_qkv.layer_norm_bias", {"transformer.h.{}.ln_1.bias"}},
      {"decoder.layers.self_attention.linear_qkv.weight",
       {"transformer.h.{}.attn.c_attn.weight"},
       Arrangement::kFusedQkv,
       kTransposed},
      {"decoder.layers.self_attention.linear_qkv.bias", {"transformer.h.{}.attn.c_attn.bias"}, Arrangement::kFusedQkv},
      {"decoder.layers.self_attention.linear_proj.weight",
       {"transformer.h.{}.attn.c_proj.weight"},
       Arrangement::kStacked,
       kTransposed},
      {"decoder.layers.self_attention.linear_proj.bias", {"transformer.h.{}.attn.c_proj.bias"}},
      {"decoder.layers.mlp.linear_fc1.layer_norm_weight", {"transformer.h.{}.ln_2.weight"}},
      {"decoder.layers.mlp.linear_fc1.layer_norm_bias", {"transformer.h.{}.ln_2.bias"}},
      {"decoder.layers.mlp.linear_fc1.weight",
       {"transformer.h.{}.mlp.c_fc.weight"},
       Arrangement::kStacked,
       kTransposed},
      {"decoder.layers.mlp.linear_fc1.bias", {"transformer.h.{}.mlp.c_fc.bias"}},
      {"decoder.layers.mlp.linear_fc2.weight",
       {"transformer.h.{}.mlp.c_proj.weight"},
       Arrangement::kStacked,
       kTransposed},
      {"decoder.layers.mlp.linear_fc2.bias", {"transformer.h.{}.mlp.c_proj.bias"}},
      {"decoder.final_layernorm.weight", {"transformer.ln_f.weight"}},
      {"decoder.final_layernorm.bias", {"transformer.ln_f.bias"}},
      {"output_layer.weight", {"lm_head.weight"}},
  };
}

}  // namespace

Family gpt2_family() {
  return {.model_type = "gpt2",
          .architecture = "GPT2LMHeadModel",
          .arguments = {{"normalization", "LayerNorm"}, {"position_embedding_type", "learned_absolute"}},
          .values = {{"vocab_size", "vocab_size", 50257},
                     {"n_embd", "hidden_size", 768},
                     {"n_layer", "num_layers", 12},
                     {"n_head", "num_attention_heads", 12},
                     {"n_positions", "max_position_embeddings", 1024},
                     {"n_inner", "ffn_hidden_size"},
                     {"layer_norm_epsilon", "layernorm_epsilon", 1e-5},
                     {"initializer_range", "init_method_std", 0.02},
                     {"attn_pdrop", "attention_dropout", 0.1}},
          .choices = {{"activation_function", {"gelu_new", "gelu_pytorch_tanh"}},
                      {"scale_attn_weights", {true}},
                      {"scale_attn_by_inverse_layer_idx", {false}},
                      {"add_cross_attention", {false}}},
          // n_ctx repeats n_positions; the upcast is a matter of precision; summaries are heads of other tasks; the
          // last three are of the first versions of transformers.
          .without_effect = {"n_ctx", "reorder_and_upcast_attn", "summary_activation", "summary_first_dropout",
                             "summary_proj_to_labels", "summary_type", "summary_use_proj", "n_special",
                             "predict_special_tokens", "output_past"},
          .derive =
              [](ConfigReader& config, Json& arguments) {
                derive_hidden_dropout(config, arguments, "resid_pdrop", "embd_pdrop", 0.1);
                derive_tied_embeddings(config, arguments, true);
              },
          .restore =
              [](const Json& arguments, Json& config) {
                const auto inner = argument_or<int64_t>(arguments, "ffn_hidden_size", 0);
                if (inner == 4 * argument_or<int64_t>(arguments, "hidden_size", 0)) config["n_inner"] = nullptr;
                restore_hidden_dropout(arguments, config, "resid_pdrop", "embd_pdrop");
                restore_tied_embeddings(arguments, config);
              },
          .tensors = gpt2_tensors(),
          .ignored_tensors = {".attn.bias", ".attn.masked_bias"}};
}

}  // namespace megatron::hugging_face
