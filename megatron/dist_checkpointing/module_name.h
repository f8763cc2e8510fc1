// Names of a rank's tensors, as Megatron's modules have them, and what they are in the whole model.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace megatron {

/// The name of a tensor in a rank's state dict, taken apart. "decoder.layers.3.mlp.experts.linear_fc1.weight5" is
/// tensor "mlp.experts.experts.linear_fc1.weight" of expert 5 of layer 3, both counted on the rank.
struct ModuleName {
  std::string prefix;             ///< "decoder.layers." or "mtp.layers."; empty outside of layers
  std::optional<int64_t> layer;   ///< of the rank
  std::string name;               ///< within the layer, as distributed checkpoints have it
  std::optional<int64_t> expert;  ///< of the rank
};

/// The facts on which names of norms depend: whether a layer has attention with a latent cache, or experts.
struct LayerModules {
  bool has_latent_attention = false, has_experts = false;
};

/// @throw NotSupported for names of Megatron before its Core models (language_model.*), and of experts in one matrix.
ModuleName parse_module_name(std::string_view name);

/// Distributed checkpoints name norms after the linears that they precede, as Transformer Engine has them, whatever
/// modules the model has: those before attention and feed-forward, and those of latent vectors. The norm before latent
/// attention keeps its module's name, for several linears follow it.
/// @param name  within a layer.
std::string stored_norm_name(std::string_view name, const LayerModules& layer);

/// The dimension of a tensor that tensor-parallel ranks share; nothing where all have the same.
/// @param name  without leading axes. @param has_local_layers  of --transformer-impl local, which cuts the projections
/// to latents too.
std::optional<int> tensor_parallel_axis(std::string_view name, bool has_local_layers);

/// Says whether the optimizer updates a tensor; others are buffers.
bool is_parameter_name(std::string_view name);

}  // namespace megatron
