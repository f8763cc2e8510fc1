// All arguments as JSON, and what --use-checkpoint-args takes from a stored one.
#include "megatron/training/config/arguments_json.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "megatron/training/config/fields.h"
#include "megatron/training/config/rules.h"

namespace megatron {
namespace {

using Json = nlohmann::json;

Json to_json(const FieldValue& value) {
  return std::visit(
      [](const auto& held) -> Json {
        if constexpr (std::is_same_v<std::decay_t<decltype(held)>, std::monostate>)
          return nullptr;
        else
          return held;
      },
      value);
}

FieldValue list_from_json(const Json& json) {
  const bool whole = std::all_of(json.begin(), json.end(), [](const Json& item) { return item.is_number_integer(); });
  const bool number = std::all_of(json.begin(), json.end(), [](const Json& item) { return item.is_number(); });
  if (json.empty()) return std::vector<std::string>{};
  if (whole) return json.get<std::vector<int64_t>>();
  if (number) return json.get<std::vector<double>>();
  return json.get<std::vector<std::string>>();
}

FieldValue from_json(const Json& json) {
  if (json.is_null()) return std::monostate{};
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_number_integer()) return json.get<int64_t>();
  if (json.is_number()) return json.get<double>();
  if (json.is_array()) return list_from_json(json);
  return json.get<std::string>();
}

Json parse_object(const std::string& text) {
  Json json = Json::parse(text, nullptr, false);
  require<ConfigError>(json.is_object(), "the stored arguments are not a JSON object");
  return json;
}

void set_from_json(Field& field, const Json& json) {
  try {
    FieldValue value = from_json(json);
    const auto* empty = std::get_if<std::vector<std::string>>(&value);
    if (empty != nullptr && empty->empty() && field.kind == WordKind::kInteger) value = std::vector<int64_t>{};
    field.set(value);
  } catch (const std::exception& error) {
    throw ConfigError(fmt::format("stored argument {} = {}: {}", field.name, json.dump(), error.what()));
  }
}

// Arguments of Megatron that, once set, make another model than those that can be built here.
constexpr auto kOtherModels = std::to_array<std::string_view>(
    {"num_experts", "multi_latent_attention", "mtp_num_layers", "attention_output_gate", "is_hybrid_model",
     "hybrid_layer_pattern", "hybrid_override_pattern", "experimental_attention_variant", "linear_attention_freq",
     "heterogeneous_layers_config_path", "heterogeneous_layers_config_encoded_json", "use_mup", "moe_latent_size"});

void require_known_model(const Json& arguments) {
  for (std::string_view name : kOtherModels) {
    const Json value = arguments.value(std::string(name), Json());
    const bool is_set = !value.is_null() && value != false && value != 0;
    require<ConfigError>(!is_set, "the stored model has {} = {}, which megatron.cpp does not have yet", name,
                         value.dump());
  }
}

// Names that other versions of Megatron store for the same setting.
std::string_view current_name(std::string_view name) {
  if (name == "apply_layernorm_1p") return "layernorm_zero_centered_gamma";
  if (name == "norm_epsilon") return "layernorm_epsilon";
  return name;
}

// What --use-checkpoint-args takes whatever the command line says: what the weights mean. Longer than Megatron's list,
// which leaves out norms of queries and keys, windows, softmax type and others that change the model without a word.
constexpr auto kTakenAlways = std::to_array<std::string_view>({"num_query_groups",
                                                               "group_query_attention",
                                                               "untie_embeddings_and_output_weights",
                                                               "position_embedding_type",
                                                               "add_position_embedding",
                                                               "use_rotary_position_embeddings",
                                                               "rotary_base",
                                                               "rotary_percent",
                                                               "rotary_interleaved",
                                                               "rotary_seq_len_interpolation_factor",
                                                               "use_rope_scaling",
                                                               "rope_scaling_factor",
                                                               "no_rope_freq",
                                                               "rotary_scaling_factor",
                                                               "yarn_original_max_position_embeddings",
                                                               "yarn_beta_fast",
                                                               "yarn_beta_slow",
                                                               "mscale",
                                                               "mscale_all_dim",
                                                               "yarn_correction_range_round_to_int",
                                                               "add_bias_linear",
                                                               "add_qkv_bias",
                                                               "normalization",
                                                               "layernorm_epsilon",
                                                               "layernorm_zero_centered_gamma",
                                                               "qk_layernorm",
                                                               "qk_l2_norm",
                                                               "apply_residual_connection_post_layernorm",
                                                               "apply_query_key_layer_scaling",
                                                               "softmax_type",
                                                               "window_size",
                                                               "window_attn_skip_freq",
                                                               "swiglu",
                                                               "quick_geglu",
                                                               "squared_relu",
                                                               "openai_gelu",
                                                               "bias_gelu_fusion",
                                                               "glu_linear_offset",
                                                               "activation_func_clamp_value",
                                                               "attention_dropout",
                                                               "hidden_dropout",
                                                               "tokenizer_type",
                                                               "tokenizer_model"});
// Of these, what two runs of one model may have apart, and counts that shapes of tensors show.
constexpr auto kNotOfTheWeights = std::to_array<std::string_view>(
    {"num_query_groups", "group_query_attention", "add_position_embedding", "use_rotary_position_embeddings",
     "apply_residual_connection_post_layernorm", "apply_query_key_layer_scaling", "attention_dropout", "hidden_dropout",
     "tokenizer_type", "tokenizer_model"});
// What it takes where the command line says nothing.
constexpr auto kTakenIfAbsent =
    std::to_array<std::string_view>({"num_layers", "hidden_size", "ffn_hidden_size", "seq_length", "kv_channels",
                                     "num_attention_heads", "padded_vocab_size", "max_position_embeddings"});

// What --dataloader-type cyclic permutes samples by (datasets/samplers.h), with names of Megatron's.
constexpr auto kSampleOrder =
    std::to_array<std::string_view>({"dataloader_type", "data_sharding", "micro_batch_size", "data_parallel_size"});

bool contains(const auto& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

std::string arguments_to_json(const PretrainConfig& config) {
  PretrainConfig copy = config;
  Json json = Json::object();
  describe(copy).for_each([&](const Field& field) { json[field.name] = to_json(field.get()); });
  return json.dump(2);
}

PretrainConfig arguments_from_json(const std::string& text) {
  PretrainConfig config;
  FieldTable table = describe(config);
  const Json stored = parse_object(text);
  require_known_model(stored);
  for (const auto& [name, value] : stored.items())
    if (Field* field = table.find(current_name(name))) set_from_json(*field, value);
  // A stored configuration holds both names of a setting.
  if (config.model.encoder_num_layers == config.model.num_layers) config.model.encoder_num_layers.reset();
  if (config.model.encoder_seq_length == config.model.seq_length) config.model.encoder_seq_length.reset();
  Mistakes mistakes;
  resolve_model(config, mistakes);
  mistakes.throw_if_any("stored arguments");
  return config;
}

void take_stored_arguments(FieldTable& table, const std::string& text) {
  const Json stored = parse_object(text);
  require_known_model(stored);
  for (const auto& [stored_name, value] : stored.items()) {
    const std::string_view name = current_name(stored_name);
    Field* field = table.find(name);
    if (field == nullptr || value.is_null()) continue;
    const bool absent = std::holds_alternative<std::monostate>(field->get());
    if (contains(kTakenAlways, name) || (contains(kTakenIfAbsent, name) && absent)) set_from_json(*field, value);
  }
}

std::vector<std::string_view> stored_argument_names() {
  std::vector<std::string_view> names(kTakenAlways.begin(), kTakenAlways.end());
  names.insert(names.end(), kTakenIfAbsent.begin(), kTakenIfAbsent.end());
  return names;
}

std::vector<std::string> other_meanings(const PretrainConfig& config, const std::string& text) {
  PretrainConfig stored, own = config;
  try {
    stored = arguments_from_json(text);
  } catch (const ConfigError&) {
    return {};
  }
  FieldTable stored_table = describe(stored), own_table = describe(own);
  std::vector<std::string> texts;
  for (const std::string_view name : kTakenAlways) {
    if (contains(kNotOfTheWeights, name)) continue;
    const std::string there = python_text(stored_table.find(name)->get()),
                      here = python_text(own_table.find(name)->get());
    if (there != here) texts.push_back(fmt::format("{} is {} there and {} here", name, there, here));
  }
  return texts;
}

std::vector<std::string> other_sample_order(const PretrainConfig& config, const std::string& text) {
  const Json stored = parse_object(text);
  const std::string stored_type = stored.value("dataloader_type", Json()).dump();
  if (config.data.dataloader_type != "cyclic" && stored_type != Json("cyclic").dump()) return {};
  PretrainConfig own = config;
  FieldTable table = describe(own);
  // Replicas that share one order take it in turns: their number only says where a pass ends.
  const bool share_an_order = !config.data.data_sharding && stored.value("data_sharding", Json()) == Json(false);
  std::vector<std::string> texts;
  for (const std::string_view name : kSampleOrder) {
    const auto found = stored.find(name);
    if (found == stored.end()) continue;
    const std::string there = python_text(from_json(*found)), here = python_text(table.find(name)->get());
    const bool ends_passes = share_an_order && name == "data_parallel_size";
    if (there != here)
      texts.push_back(fmt::format("{} is {} there and {} here{}", name, there, here,
                                  ends_passes ? " (which matters from the second pass on)" : ""));
  }
  return texts;
}

}  // namespace megatron
