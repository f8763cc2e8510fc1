// Llama in the form in which Meta publishes it (params.json, consolidated.NN.pth), in terms of Hugging Face's.
#pragma once

#include <string>
#include <vector>

#include "megatron/models/hugging_face/family.h"

namespace megatron::hugging_face {

/// How the model-parallel files share a tensor. Source: github.com/meta-llama/llama, model.py.
enum class MetaSplit {
  kRows,       ///< ColumnParallelLinear
  kColumns,    ///< RowParallelLinear
  kEmbedding,  ///< rows from Llama 3 on (VocabParallelEmbedding), columns before: the shapes say which
  kRepeated,   ///< every file has it
};

struct MetaRule {
  std::string tensor;  ///< Hugging Face's name; "{}" stands for the number of the layer
  std::string stored;  ///< Meta's
  MetaSplit split = MetaSplit::kRows;
  /// Meta rotates pairs of neighbouring rows of each head, Hugging Face rows that are half a head apart:
  /// row i of half j is row 2 i + j of Meta's.
  bool has_rotary_pairs = false;
};
/// All tensors of a Llama.
std::vector<MetaRule> meta_llama_tensors();

/// The facts that the tensors say and params.json does not.
struct MetaSizes {
  int64_t vocab_size = 0, ffn_hidden_size = 0;
  bool has_output_layer = true;
};
/// The config.json of a Llama with these params.json. It says neither the longest sequence nor the factor of Llama
/// 3.1's rotary scaling, which are those that Meta has published: 131072 positions with use_scaled_rope, else 8192 with
/// a rope_theta of 500000, else 4096; and a factor of 32 up to a width of 3072 (Llama 3.2), else 8.
/// @throw NotSupported listing keys that are missing or unknown. @param source  names the file in errors.
Json meta_llama_config(const Json& params, const MetaSizes& sizes, const std::string& source);

}  // namespace megatron::hugging_face
