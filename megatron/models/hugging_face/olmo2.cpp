// OLMo 2: Llama with norms behind the blocks alone, and norms over all heads of queries and of keys.
#include "megatron/models/hugging_face/olmo2.h"

#include "megatron/models/hugging_face/llama.h"

namespace megatron::hugging_face {

Family olmo2_family() {
  Family family = llama_like_family("olmo2", "Olmo2ForCausalLM",
                                    {.vocab_size = 50304,
                                     .hidden_size = 4096,
                                     .intermediate_size = 11008,
                                     .num_hidden_layers = 32,
                                     .num_attention_heads = 32,
                                     .max_position_embeddings = 2048,
                                     .norm_epsilon = 1e-5});
  family.arguments["layernorm_placement"] = "post";
  family.arguments["qk_layernorm"] = true;
  family.arguments["qk_layernorm_across_heads"] = true;
  family.choices.push_back({"attention_bias", {false}});
  family.tensors = all_of({family.tensors, post_norm_tensors(), query_key_norm_tensors()});
  return family;
}

}  // namespace megatron::hugging_face
