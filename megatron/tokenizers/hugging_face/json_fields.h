// Fields of the objects in a tokenizer.json.
#pragma once

#include <simdjson.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace megatron::hugging_face {

/// Reads the fields of one JSON object and knows which were read, so that none is dropped without notice.
class JsonFields {
 public:
  /// @param where  names the object in errors, such as "tokenizer.json: normalizer".
  /// @throw DataError if `json` is not an object or has a field twice.
  JsonFields(simdjson::dom::element json, std::string where);

  const std::string& where() const { return where_; }
  /// The field, or nothing if it is missing or null.
  std::optional<simdjson::dom::element> find(std::string_view name);
  /// @throw DataError if it is missing, null, or not of the type.
  simdjson::dom::element get(std::string_view name);
  std::string get_string(std::string_view name);
  bool get_bool(std::string_view name);
  int64_t get_integer(std::string_view name);
  std::vector<simdjson::dom::element> get_array(std::string_view name);
  /// The same with a value for a field that is missing or null.
  std::optional<std::string> find_string(std::string_view name);
  bool get_bool_or(std::string_view name, bool otherwise);
  int64_t get_integer_or(std::string_view name, int64_t otherwise);
  /// Reads a field whose value has no meaning for us.
  void skip(std::string_view name) { find(name); }

  /// @throw NotSupported naming the fields that were not read.
  void require_all_read() const;

 private:
  [[noreturn]] void refuse(std::string_view name, std::string_view expected) const;

  simdjson::dom::object object_;
  std::string where_;
  std::vector<std::string_view> names_;
  std::vector<bool> read_;
};

/// A token id that JSON holds as an integer. @throw DataError if it is none.
int32_t token_id_of(simdjson::dom::element json, std::string_view where);

}  // namespace megatron::hugging_face
