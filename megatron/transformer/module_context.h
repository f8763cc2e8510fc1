// Everything that a layer is built from.
#pragma once

#include <string>
#include <string_view>

#include "megatron/autograd/parameter.h"
#include "megatron/comm/process_group_collection.h"
#include "megatron/core/context.h"
#include "megatron/tensor_parallel/comm_overlap.h"
#include "megatron/transformer/transformer_config.h"

namespace megatron {

/// Passed down while a model is built; `path` names the layer, as Megatron Core names it, and `stored` is what the
/// names of its parameters in checkpoints begin with.
struct ModuleContext {
  const Context& ctx;
  const TransformerConfig& config;
  const ProcessGroupCollection& groups;
  std::string path;
  bool sequence_parallel = false;
  TensorCommOverlap overlap = {};
  StoredName stored = {};
  bool replicates_tokens = false;  ///< all ranks of the world compute the same tokens, as in generation

  ModuleContext at(std::string_view child) const;
  /// Layer `number`, from 0, of several that checkpoints store as one tensor for each name:
  /// layer("decoder.layers", 3) is the layer decoder.layers.3, stored at place 3 of decoder.layers.
  ModuleContext layer(std::string_view layers, int64_t number) const;
  /// A norm in front of a linear layer, which has the linear's name in checkpoints whatever implementation ran:
  /// "self_attention.linear_qkv.layer_norm_weight".
  ModuleContext norm_before(std::string_view norm, std::string_view linear) const;
  /// A norm behind a linear layer: "self_attention.linear_proj.post_layernorm.weight", as Megatron Bridge stores those
  /// of Gemma 2.
  ModuleContext norm_behind(std::string_view norm, std::string_view linear) const;
  /// A parameter of the layer: its names, its dtype and the rank's place.
  ParameterOptions parameter(std::string_view name, ShardSpec shard) const;
  /// A parameter that every tensor-parallel rank has whole. Under sequence parallelism each of them sees part of the
  /// tokens, so that its gradient is summed over them.
  ShardSpec whole(const Shape& shape) const;
  /// Standard deviation of layers that write into the residual stream: GPT-2's 1/sqrt(2 layers).
  double output_init_std() const;
};

}  // namespace megatron
