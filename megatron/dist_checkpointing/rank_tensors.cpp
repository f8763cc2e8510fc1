#include "megatron/dist_checkpointing/rank_tensors.h"

#include <algorithm>
#include <array>
#include <tuple>

#include "megatron/base/error.h"
#include "megatron/dist_checkpointing/module_name.h"

namespace megatron {
namespace {

using Tensors = std::map<std::string, GlobalTensor, std::less<>>;

constexpr std::string_view kLayers = "decoder.layers.", kFurtherLayers = "mtp.layers.";
constexpr std::string_view kSharedWeight = "embedding.word_embeddings.weight";
constexpr std::string_view kExpertLinears = "mlp.experts.experts.";

const pickle::Object* value_in(const pickle::Object& arguments, std::string_view name) {
  const pickle::Object* value = arguments.find(name);
  return value && !value->is_none() ? value : nullptr;
}

/// A key taken apart: layers of one kind are one tensor, others have the number in the key.
struct KeyParts {
  bool is_of_layer = false;
  std::optional<int64_t> layer;  // nothing: the first axis is that of the layers
  std::string name;              // within the layer
};

KeyParts parts_of(const std::string& key) {
  if (!key.starts_with(kLayers)) return {.name = key};
  const bool is_numbered = key.find_first_of("0123456789") == kLayers.size();
  if (!is_numbered) return {.is_of_layer = true, .layer = {}, .name = key.substr(kLayers.size())};
  const ModuleName parsed = parse_module_name(key);
  return {.is_of_layer = true, .layer = parsed.layer, .name = parsed.name};
}

/// The module that a norm before a linear is without Transformer Engine.
std::string_view own_module_of(std::string_view norm) {
  const auto precedes = [&](std::string_view linear) { return norm.find(linear) != std::string_view::npos; };
  if (precedes("linear_q_up_proj.")) return "q_layernorm.";
  if (precedes("linear_kv_up_proj.")) return "kv_layernorm.";
  return precedes("linear_qkv.") ? "input_layernorm." : "pre_mlp_layernorm.";
}

/// The place of a tensor among those of its layer: module, then what is registered within it. Attention has its core
/// and its output before the projections; parameters of a module come before those of modules within it.
std::tuple<int64_t, int64_t> place_in_layer(std::string_view name, bool has_local_layers) {
  static constexpr auto kModules = std::to_array<std::string_view>({"input_layernorm.",
                                                                    "core_attention.",
                                                                    "linear_proj.",
                                                                    "linear_qkv.",
                                                                    "linear_q_proj.",
                                                                    "linear_q_down_proj.",
                                                                    "linear_q_up_proj.",
                                                                    "linear_kv_down_proj.",
                                                                    "linear_kv_up_proj.",
                                                                    "q_layernorm.",
                                                                    "k_layernorm.",
                                                                    "kv_layernorm.",
                                                                    "post_self_attn_layernorm.",
                                                                    "pre_mlp_layernorm.",
                                                                    "router.",
                                                                    "fc1_latent_proj.",
                                                                    "fc2_latent_proj.",
                                                                    "experts.",
                                                                    "shared_experts.gate_weight",
                                                                    "shared_experts.linear_fc1.",
                                                                    "shared_experts.linear_fc2.",
                                                                    "linear_fc1.",
                                                                    "linear_fc2."});
  static constexpr auto kParameters =
      std::to_array<std::string_view>({"layer_norm_weight", "layer_norm_bias", "weight", "bias"});
  const auto parameter = std::ranges::find_if(kParameters, [&](std::string_view end) { return name.ends_with(end); });
  if (has_local_layers && name.find(".layer_norm_") != std::string_view::npos) name = own_module_of(name);
  const auto is_of = [&](std::string_view module) {
    if (module == "experts.") return name.find(kExpertLinears) != std::string_view::npos;
    const size_t at = name.find(module);
    return at != std::string_view::npos && (at == 0 || name[at - 1] == '.');
  };
  const auto module = std::ranges::find_if(kModules, is_of);
  return {module - kModules.begin(), parameter - kParameters.begin()};
}

/// The place of a tensor in the order of registration.
using RegistrationPlace = std::array<int64_t, 7>;

class RankTensors {
 public:
  RankTensors(const Tensors& model, const ModelDivision& division, const StagePart& part, const StageRank& rank,
              RankContents contents)
      : model_(model), division_(division), part_(part), rank_(rank), takes_all_(contents == RankContents::kAll) {}

  std::vector<RankTensor> take() {
    for (const auto& [key, tensor] : model_)
      if ((takes_all_ || is_parameter_name(key)) && key.find("optimizer.") == std::string::npos) add(key, tensor);
    std::ranges::stable_sort(placed_, {}, &Placed::place);
    std::vector<RankTensor> tensors;
    tensors.reserve(placed_.size());
    for (Placed& one : placed_) tensors.push_back(std::move(one.tensor));
    return tensors;
  }

 private:
  struct Placed {
    RegistrationPlace place;
    RankTensor tensor;
  };

  enum Area : int64_t { kEmbedding, kDecoder, kFinalNorm, kFurther, kOutput };

  void add(const std::string& key, const GlobalTensor& tensor) {
    const KeyParts parts = parts_of(key);
    if (parts.is_of_layer) return add_layers(key, tensor, parts);
    if (key.starts_with(kFurtherLayers)) return add_further(key, tensor);
    if (!key.starts_with("embedding.")) {
      const Area area = key.starts_with("decoder.") ? kFinalNorm : kOutput;
      if (part_.has_head) place({area, 0, std::get<1>(place_in_layer(key, false))}, key, tensor, key, {}, {});
      return;
    }
    const bool is_word = key == kSharedWeight;
    const bool is_shared = is_word && division_.ties_embeddings && !division_.has_one_stage();
    if (part_.has_embedding) {
      place({kEmbedding, is_word ? 0 : 1}, key, tensor, key, {}, {}).is_shared_embedding = is_shared;
    } else if (part_.has_head && is_shared) {  // the output layer's weight is a copy
      RankTensor& copy = place({kOutput}, key, tensor, key, {}, {});
      copy.is_shared_embedding = copy.is_copy = true;
    }
  }

  void add_further(const std::string& key, const GlobalTensor& tensor) {
    if (takes_all_ && !part_.has_head) return;
    require<NotSupported>(takes_all_ || division_.has_one_stage(),
                          "[checkpoint] {}: where Megatron places the modules of multi-token prediction among several "
                          "pipeline stages is unsupported in this form.",
                          key);
    const ModuleName parsed = parse_module_name(key);
    static constexpr auto kOwn =
        std::to_array<std::string_view>({"enorm.", "hnorm.", "eh_proj.", "transformer_layer."});
    const auto own = std::ranges::find_if(kOwn, [&](std::string_view name) { return parsed.name.starts_with(name); });
    const auto [module, parameter] = place_in_layer(parsed.name, division_.has_local_layers);
    const bool is_inner = own != kOwn.end() && *own == kOwn.back();
    const bool has_experts = parsed.name.find(kExpertLinears) != std::string::npos;
    require<NotSupported>(takes_all_ || !has_experts,
                          "[checkpoint] {}: experts within multi-token prediction are unsupported in this form.", key);
    if (has_experts)
      return add_experts({kFurther, *parsed.layer, own - kOwn.begin()}, key, tensor, parsed.name, {}, {});
    place({kFurther, *parsed.layer, own - kOwn.begin(), is_inner ? module : 0, parameter}, key, tensor, parsed.name, {},
          {});
  }

  void add_layers(const std::string& key, const GlobalTensor& tensor, const KeyParts& parts) {
    const int64_t first = parts.layer.value_or(part_.first_layer);
    const int64_t end = parts.layer ? first + 1 : std::min(part_.first_layer + part_.num_layers, tensor.shape[0]);
    for (int64_t layer = first; layer < end; ++layer) {
      if (layer < part_.first_layer || layer >= part_.first_layer + part_.num_layers) continue;
      std::vector<int64_t> leading;
      if (!parts.layer) leading.push_back(layer);
      add_layer(key, tensor, parts.name, layer, leading);
    }
  }

  void add_layer(const std::string& key, const GlobalTensor& tensor, const std::string& name, int64_t layer,
                 const std::vector<int64_t>& leading) {
    if (name.starts_with(kExpertLinears)) return add_experts({kDecoder, layer}, key, tensor, name, leading, layer);
    const auto [module, parameter] = place_in_layer(name, division_.has_local_layers);
    place({kDecoder, layer, 0, module, parameter}, key, tensor, name, leading, {}).layer = layer;
  }

  /// Adds the rank's experts. @param order  the place of what they are in. @param layer  of the decoder
  void add_experts(RegistrationPlace order, const std::string& key, const GlobalTensor& tensor, const std::string& name,
                   const std::vector<int64_t>& leading, const std::optional<int64_t>& layer) {
    const auto [module, parameter] = place_in_layer(name, division_.has_local_layers);
    const int64_t num_experts = tensor.shape[static_cast<int>(leading.size())];
    require<CheckpointError>(num_experts % division_.expert == 0,
                             "[checkpoint] {}: {} experts cannot be divided among {} ranks.", key, num_experts,
                             division_.expert);
    const int64_t own = num_experts / division_.expert, linear = name.find("linear_fc1.") == std::string::npos;
    for (int64_t expert = rank_.expert * own; expert < (rank_.expert + 1) * own; ++expert) {
      std::vector<int64_t> of_expert = leading;
      of_expert.push_back(expert);
      order[3] = module;
      order[4] = division_.has_grouped_experts ? linear : expert;
      order[5] = division_.has_grouped_experts ? expert : linear;
      order[6] = parameter;
      place(order, key, tensor, name, of_expert, expert).layer = layer;
    }
  }

  /// Says whether gate and up follow each other in a linear_fc1: it has twice the rows that linear_fc2 has columns.
  bool is_gated(const std::string& key, int64_t rows) const {
    const size_t at = key.find("linear_fc1.");
    if (at == std::string::npos || key.find("layer_norm") != std::string::npos) return false;
    const auto second = model_.find(key.substr(0, at) + "linear_fc2.weight");
    return second != model_.end() && rows == 2 * second->second.shape[second->second.shape.rank() - 1];
  }

  /// @param leading  positions in the leading axes: layer, expert.
  RankTensor& place(const RegistrationPlace& order, const std::string& key, const GlobalTensor& tensor,
                    const std::string& name, const std::vector<int64_t>& leading,
                    const std::optional<int64_t>& expert) {
    Placed& placed = placed_.emplace_back();
    placed.place = order;
    RankTensor& own = placed.tensor;
    own.key = key;
    own.name = name;
    own.num_leading = static_cast<int>(leading.size());
    own.expert = expert;
    const bool has_expert_ranks = expert.has_value();
    const int64_t num_ranks = has_expert_ranks ? division_.expert_tensor : division_.tensor;
    const int64_t rank = has_expert_ranks ? rank_.expert_tensor : rank_.tensor;
    const int num_leading = own.num_leading;
    Box box = Box::whole(tensor.shape);
    for (int dim = 0; dim < num_leading; ++dim) {
      box.offsets[dim] = leading[static_cast<size_t>(dim)];
      box.sizes[dim] = 1;
    }
    const auto axis = tensor_parallel_axis(name, division_.has_local_layers);
    const bool is_cut = axis && num_leading + *axis < tensor.shape.rank();
    own.is_copy = !is_cut && rank > 0;
    const int dim = is_cut ? num_leading + *axis : 0;
    const int64_t num_parts = is_cut && is_gated(key, tensor.shape[dim]) ? 2 : 1;
    const int64_t pieces = is_cut ? num_parts * num_ranks : 1;
    require<CheckpointError>(!is_cut || tensor.shape[dim] % pieces == 0,
                             "[checkpoint] {} {} cannot be cut into {} tensor-parallel parts.", key, tensor.shape,
                             num_ranks);
    for (int64_t part = 0; part < num_parts; ++part) {
      Box cut = box;
      if (is_cut) {
        cut.sizes[dim] = tensor.shape[dim] / pieces;
        cut.offsets[dim] = (part * num_ranks + rank) * cut.sizes[dim];
      }
      own.parts.push_back({own.num_elements, cut});
      own.num_elements += cut.sizes.num_elements();
    }
    return own;
  }

  const Tensors& model_;
  const ModelDivision& division_;
  const StagePart& part_;
  const StageRank& rank_;
  bool takes_all_;
  std::vector<Placed> placed_;
};

}  // namespace

ModelDivision ModelDivision::of(const pickle::Object& arguments) {
  const auto size = [&](std::string_view name, int64_t otherwise) {
    const pickle::Object* value = value_in(arguments, name);
    return value ? value->as_int() : otherwise;
  };
  const auto is_set = [&](std::string_view name) {
    const pickle::Object* value = value_in(arguments, name);
    return value && value->as_bool();
  };
  const pickle::Object* implementation = value_in(arguments, "transformer_impl");
  ModelDivision division{.tensor = size("tensor_model_parallel_size", 1),
                         .pipeline = size("pipeline_model_parallel_size", 1),
                         .expert = size("expert_model_parallel_size", 1)};
  division.expert_tensor = size("expert_tensor_parallel_size", division.tensor);
  division.has_local_layers = implementation && implementation->as_string() == "local";
  division.has_grouped_experts = is_set("moe_grouped_gemm");
  division.ties_embeddings = !is_set("untie_embeddings_and_output_weights");
  return division;
}

std::vector<RankTensor> tensors_of_rank(const Tensors& model, const ModelDivision& division, const StagePart& part,
                                        const StageRank& rank, RankContents contents) {
  return RankTensors(model, division, part, rank, contents).take();
}

int64_t num_layers_of(const Tensors& model) {
  int64_t count = 0;
  for (const auto& [key, tensor] : model)
    if (const KeyParts parts = parts_of(key); parts.is_of_layer)
      count = std::max(count, parts.layer ? *parts.layer + 1 : tensor.shape[0]);
  return count;
}

}  // namespace megatron
