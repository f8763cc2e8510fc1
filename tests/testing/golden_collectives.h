// The steps of Megatron Core on four ranks whose collectives are recorded in tests/golden/parallelism/collectives.json.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/transformer/transformer_config.h"
#include "tests/testing/golden_json.h"
#include "tests/testing/recorded_operations.h"

namespace megatron::testing {

/// 16 of two models on several layouts.
inline nlohmann::json golden_collective_steps() { return golden_json("parallelism/collectives.json", "steps"); }

/// The model of a step.
inline TransformerConfig config_of_golden_step(const nlohmann::json& step) {
  TransformerConfig config;
  config.num_layers = step["layers"];
  config.hidden_size = step["h"];
  config.ffn_hidden_size = step["ffn"];
  config.num_attention_heads = step["heads"];
  config.num_query_groups = step["query_groups"];
  config.kv_channels = config.hidden_size / config.num_attention_heads;
  config.vocab_size = config.padded_vocab_size = step["vocab"];
  config.max_sequence_length = step["s"];
  config.hidden_dropout = config.attention_dropout = 0;
  if (step["model"] == "A") return config;
  config.normalization = Normalization::kRMSNorm;
  config.position_embedding_type = PositionEmbeddingType::kRope;
  config.activation_func = ActivationFunc::kSilu;
  config.gated_linear_unit = true;
  config.add_bias_linear = false;
  config.share_embeddings_and_output_weights = false;
  return config;
}

/// @throw DtypeError for one that gradients and activations cannot have.
inline DType floating_dtype(const std::string& name) {
  for (const DType dtype : {DType::kFloat64, DType::kFloat32, DType::kBFloat16, DType::kFloat16})
    if (name == name_of(dtype)) return dtype;
  throw DtypeError(fmt::format("{} is not a floating dtype", name));
}

/// Those of one group in a phase of a step.
inline std::vector<Collective> golden_collectives(const nlohmann::json& phase, std::string_view group) {
  std::vector<Collective> result;
  for (const nlohmann::json& call : phase) {
    if (call[1] != group) continue;
    const CommOp op = call[0] == "AR"   ? CommOp::kAllReduce
                      : call[0] == "AG" ? CommOp::kAllGather
                                        : CommOp::kReduceScatter;
    result.push_back({op, call[2], floating_dtype(call[3])});
  }
  return result;
}

}  // namespace megatron::testing
