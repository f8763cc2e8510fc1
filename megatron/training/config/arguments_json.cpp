// Writes all arguments as JSON, and reads those that --use-checkpoint-args takes from a checkpoint.
#include "megatron/training/config/arguments_json.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "megatron/training/config/fields.h"
#include "megatron/training/config/rules.h"
#include "megatron/training/config/unsupported_flags.h"

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

/// Megatron stores None for settings that were not given and that have a value here, such as an empty list, and other
/// versions of it store other kinds of values: these matter for settings of the model alone.
void set_if_it_fits(Field& field, const Json& json) {
  const bool is_of_model = field.weights_meaning || field.stored != StoredValue::kIgnored;
  try {
    set_from_json(field, json);
  } catch (const ConfigError&) {  // the default stays
    if (is_of_model && !json.is_null()) throw;
  }
}

void require_known_model(const Json& arguments) {
  for (const UnsupportedFlags& group : unsupported_flags())
    for (const UnsupportedFlag& flag : group.flags) {
      if (!flag.changes_the_model) continue;
      std::string name(flag.flag.substr(2));
      std::ranges::replace(name, '-', '_');
      const Json value = arguments.value(name, Json());
      const bool is_set = !value.is_null() && value != false && value != 0;
      require<ConfigError>(!is_set, "the stored model has {} = {}, which megatron.cpp does not have yet", name,
                           value.dump());
    }
}

/// The field of a stored argument, whose name may be one that another version of Megatron gave it; or null.
Field* find_stored(FieldTable& table, std::string_view name) {
  if (Field* field = table.find(name)) return field;
  for (FieldGroup& group : table.groups())
    for (Field& field : group.fields)
      if (std::ranges::find(field.former_names, name) != field.former_names.end()) return &field;
  return nullptr;
}

}  // namespace

std::string arguments_to_json(const PretrainConfig& config) {
  PretrainConfig copy = config;
  Json json = Json::object();
  describe(copy).for_each([&](const Field& field) { json[field.name] = to_json(field.get()); });
  return json.dump(2);
}

PretrainConfig arguments_from_json(const std::string& text, const ModelFamily& family) {
  PretrainConfig config = default_config(family);
  FieldTable table = describe(config);
  const Json stored = parse_object(text);
  require_known_model(stored);
  for (const auto& [name, value] : stored.items())
    if (Field* field = find_stored(table, name)) set_if_it_fits(*field, value);
  // A stored configuration holds both names of a setting.
  if (config.model.encoder_num_layers == config.model.num_layers) config.model.encoder_num_layers.reset();
  if (config.model.encoder_seq_length == config.model.seq_length) config.model.encoder_seq_length.reset();
  // Choices that balance by themselves add no loss: its coefficient had no effect on the run that stored it.
  for (const LoadBalancingType type : {LoadBalancingType::kSinkhorn, LoadBalancingType::kQuantileBalancing})
    if (std::ranges::count(config.experts.router_load_balancing_type, type) > 0)
      std::ranges::fill(config.experts.aux_loss_coeff, 0);
  Mistakes mistakes;
  resolve_model(config, mistakes);
  mistakes.throw_if_any("stored arguments");
  return config;
}

void take_stored_arguments(FieldTable& table, const std::string& text) {
  const Json stored = parse_object(text);
  require_known_model(stored);
  for (const auto& [name, value] : stored.items()) {
    Field* field = find_stored(table, name);
    if (field == nullptr || value.is_null()) continue;
    const bool is_set = !std::holds_alternative<std::monostate>(field->get());
    if (field->stored == StoredValue::kTaken || (field->stored == StoredValue::kTakenIfNotSet && !is_set))
      set_from_json(*field, value);
  }
}

void take_hugging_face_arguments(FieldTable& table, PretrainConfig& config, const std::string& text) {
  const TokenizerConfig given = config.tokenizer;
  take_stored_arguments(table, text);
  if (config.given.contains("tokenizer_type") || config.given.contains("tokenizer_model")) config.tokenizer = given;
  if (!config.tokenizer.vocab_size) config.tokenizer.vocab_size = parse_object(text).at("vocab_size").get<int64_t>();
}

std::vector<std::string> other_meanings(const PretrainConfig& config, const std::string& text) {
  PretrainConfig stored, own = config;
  try {
    stored = arguments_from_json(text, config.family);
  } catch (const ConfigError&) {
    return {};
  }
  FieldTable stored_table = describe(stored), own_table = describe(own);
  std::vector<std::string> texts;
  own_table.for_each([&](const Field& field) {
    if (!field.weights_meaning) return;
    const std::string there = python_text(stored_table.find(field.name)->get()), here = python_text(field.get());
    if (there != here) texts.push_back(fmt::format("{} is {} there and {} here", field.name, there, here));
  });
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
  table.for_each([&](const Field& field) {
    const auto found = stored.find(field.name);
    if (!field.orders_samples || found == stored.end()) return;
    const std::string there = python_text(from_json(*found)), here = python_text(field.get());
    const bool ends_passes = share_an_order && field.name == "data_parallel_size";
    if (there != here)
      texts.push_back(fmt::format("{} is {} there and {} here{}", field.name, there, here,
                                  ends_passes ? " (which matters from the second pass on)" : ""));
  });
  return texts;
}

}  // namespace megatron
