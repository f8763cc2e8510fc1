#include "megatron/tokenizers/hugging_face/json_fields.h"

#include <algorithm>
#include <limits>

#include "megatron/base/error.h"
#include "megatron/base/word_list.h"

namespace megatron::hugging_face {

JsonFields::JsonFields(simdjson::dom::element json, std::string where) : where_(std::move(where)) {
  require<DataError>(!json.get(object_), "{} is not a JSON object", where_);
  for (const auto& [name, value] : object_) {
    require<DataError>(std::ranges::find(names_, name) == names_.end(), "{} has the field '{}' twice", where_, name);
    names_.push_back(name);
  }
  read_.resize(names_.size());
}

std::optional<simdjson::dom::element> JsonFields::find(std::string_view name) {
  const auto place = std::ranges::find(names_, name);
  if (place == names_.end()) return std::nullopt;
  read_[static_cast<size_t>(place - names_.begin())] = true;
  const simdjson::dom::element value = object_.at_key(name).value();
  if (value.is_null()) return std::nullopt;
  return value;
}

void JsonFields::refuse(std::string_view name, std::string_view expected) const {
  throw DataError(fmt::format("{}: the field '{}' is missing or is not {}", where_, name, expected));
}

simdjson::dom::element JsonFields::get(std::string_view name) {
  const auto value = find(name);
  if (!value) refuse(name, "a value");
  return *value;
}

std::optional<std::string> JsonFields::find_string(std::string_view name) {
  const auto value = find(name);
  if (!value) return std::nullopt;
  std::string_view text;
  if (value->get(text)) refuse(name, "a string");
  return std::string(text);
}

std::string JsonFields::get_string(std::string_view name) {
  auto text = find_string(name);
  if (!text) refuse(name, "a string");
  return *std::move(text);
}

bool JsonFields::get_bool(std::string_view name) {
  bool result = false;
  if (get(name).get(result)) refuse(name, "true or false");
  return result;
}

int64_t JsonFields::get_integer(std::string_view name) {
  int64_t result = 0;
  if (get(name).get(result)) refuse(name, "an integer");
  return result;
}

bool JsonFields::get_bool_or(std::string_view name, bool otherwise) { return find(name) ? get_bool(name) : otherwise; }

int64_t JsonFields::get_integer_or(std::string_view name, int64_t otherwise) {
  return find(name) ? get_integer(name) : otherwise;
}

std::vector<simdjson::dom::element> JsonFields::get_array(std::string_view name) {
  simdjson::dom::array array;
  if (get(name).get(array)) refuse(name, "a list");
  return {array.begin(), array.end()};
}

void JsonFields::require_all_read() const {
  std::vector<std::string_view> unknown;
  for (size_t i = 0; i < names_.size(); ++i)
    if (!read_[i]) unknown.push_back(names_[i]);
  require<NotSupported>(unknown.empty(), "{} has the unknown field {}, which may change the ids", where_,
                        joined(unknown, ", "));
}

int32_t token_id_of(simdjson::dom::element json, std::string_view where) {
  int64_t id = 0;
  require<DataError>(!json.get(id) && id >= 0 && id < std::numeric_limits<int32_t>::max(),
                     "{}: a token id is not an integer from 0 to 2^31 - 2", where);
  return static_cast<int32_t>(id);
}

}  // namespace megatron::hugging_face
