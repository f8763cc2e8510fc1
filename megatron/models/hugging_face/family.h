// How the models of one `model_type` of Hugging Face's config.json map to Megatron's arguments and tensors, as data.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace megatron::hugging_face {

using Json = nlohmann::ordered_json;

class ConfigReader;

/// A key of config.json that is an argument of Megatron's under another name.
struct ConfigValue {
  std::string key, argument;
  Json otherwise = nullptr;  ///< the value where the key is missing or null; null: the argument stays unset
};

/// Says whether a config.json that is made from arguments gets a key. Some keys are in a few published files alone.
enum class Written { kAlways, kNever };

/// A key of config.json of which only these values are supported. A missing key counts as the first one.
struct ConfigChoice {
  std::string key;
  std::vector<Json> supported;
  Written written = Written::kAlways;
};

/// How Hugging Face's tensors make up one parameter of a layer.
enum class Arrangement {
  kStacked,   ///< one after the other along dimension 0: a single tensor, or gate and up in linear_fc1
  kQkv,       ///< query, key and value, which linear_qkv has interleaved by query group
  kFusedQkv,  ///< the same in one tensor: all queries, all keys, all values
  kGateUp,    ///< gate and up in one tensor, whose rows alternate; linear_fc1 has them one after the other
};

/// The source of one of Megatron's parameters.
struct TensorRule {
  std::string parameter;             ///< its key in checkpoints: "decoder.layers.self_attention.linear_qkv.weight"
  std::vector<std::string> tensors;  ///< "{}" stands for the number of the layer, from 0
  Arrangement arrangement = Arrangement::kStacked;
  bool is_transposed = false;   ///< matrices are stored [in, out] (GPT-2's Conv1D)
  bool stacks_experts = false;  ///< one tensor has the parameters of all experts, with a first axis over them
};

/// A tensor that has the values of another one.
struct TensorCopy {
  std::string tensor;  ///< "{}" stands for the number of the layer
  std::string original;
};

/// The parameter that every layer for further tokens has.
inline constexpr const char* kFurtherProjection = "mtp.layers.eh_proj.weight";

struct Family {
  std::string model_type, architecture;
  Json arguments;                           ///< of every model of the family
  std::vector<ConfigValue> values;          ///< keys that are arguments
  std::vector<ConfigChoice> choices;        ///< keys of which some values are supported
  std::vector<std::string> without_effect;  ///< keys that do not change what the model computes
  /// Converts the remaining keys: those that determine several arguments, or arguments that several keys determine.
  std::function<void(ConfigReader& config, Json& arguments)> derive;
  /// The inverse of `derive`: adds the keys that `derive` reads. @param arguments  as those of config_of()
  std::function<void(const Json& arguments, Json& config)> restore;
  std::vector<TensorRule> tensors;
  std::vector<std::string> ignored_tensors;     ///< endings of names in older files that hold no weights, such as masks
  std::string num_further_layers = {};          ///< key of the number of layers that predict further tokens
  std::vector<TensorCopy> further_copies = {};  ///< of each of these layers
};

}  // namespace megatron::hugging_face
