#include "megatron/tokenizers/chat_template/value.h"

#include <simdjson.h>

#include <algorithm>

#include "megatron/base/error.h"
#include "megatron/base/field.h"
#include "megatron/tokenizers/utf8.h"

namespace megatron::chat_template {
namespace {

constexpr int64_t kBytesOfWeight = 64;
constexpr int64_t kMaxIndent = 64;

std::string number_text(double value) { return python_text(FieldValue(value)); }

/// Python's repr() of a string: single quotes unless it holds them and no double ones.
std::string repr_of(const std::string& text) {
  const char quote = text.find('\'') != std::string::npos && text.find('"') == std::string::npos ? '"' : '\'';
  std::string result(1, quote);
  for (const char c : text) {
    if (c == quote || c == '\\') result += '\\';
    if (c == '\n')
      result += "\\n";
    else if (c == '\r')
      result += "\\r";
    else if (c == '\t')
      result += "\\t";
    else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F)
      result += fmt::format("\\x{:02x}", static_cast<unsigned>(c));
    else
      result += c;
  }
  return result + quote;
}

std::string repr_of(const Value& value) {
  if (value.is_string()) return repr_of(value.string());
  std::string result, separator;
  if (value.is_list()) {
    for (const Value& item : value.list()) result += std::exchange(separator, ", ") + repr_of(item);
    return "[" + result + "]";
  }
  if (value.is_dict()) {
    for (const auto& [key, item] : value.dict())
      result += std::exchange(separator, ", ") + repr_of(key) + ": " + repr_of(item);
    return "{" + result + "}";
  }
  return text_of(value);
}

/// Characters beyond ASCII as \uXXXX, with two of them for those beyond the basic plane.
std::string escaped(std::string_view character) {
  const auto escape = [](uint32_t unit) { return fmt::format("\\u{:04x}", unit); };
  const uint32_t point = code_point_at(character, 0);
  if (point < 0x10000) return escape(point);
  return escape(0xD800 + (point - 0x10000) / 0x400) + escape(0xDC00 + (point - 0x10000) % 0x400);
}

std::string with_escapes(const std::string& json) {
  std::string result;
  for (size_t i = 0, size; i < json.size(); i += size) {
    size = utf8_length(json[i]);
    const bool is_plain = size == 1 && json[i] != '\x7f';
    result += is_plain ? json.substr(i, 1) : escaped(std::string_view(json).substr(i, size));
  }
  return result;
}

std::string json_string_of(const std::string& text) {
  std::string json = "\"";
  for (const char c : text) {
    switch (c) {
      case '"':
        json += "\\\"";
        break;
      case '\\':
        json += "\\\\";
        break;
      case '\b':
        json += "\\b";
        break;
      case '\f':
        json += "\\f";
        break;
      case '\n':
        json += "\\n";
        break;
      case '\r':
        json += "\\r";
        break;
      case '\t':
        json += "\\t";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20)
          json += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
        else
          json += c;
    }
  }
  return json + "\"";
}

class JsonWriter {
 public:
  explicit JsonWriter(const JsonStyle& style) : style_(style) {}

  void append(const Value& value, int64_t level) {
    require_text_size(json.size());
    if (value.is_list())
      append_items(value.list(), "[]", level, [&](const Value& item) { append(item, level + 1); });
    else if (value.is_dict())
      append_dict(value.dict(), level);
    else if (value.is_string())
      append_string(value.string());
    else if (value.is<bool>())
      json += value.integer() != 0 ? "true" : "false";
    else if (value.is_none())
      json += "null";
    else if (value.is_number())
      json += text_of(value);
    else
      throw DataError(fmt::format("tojson: {} has no JSON", value.kind()));
  }

  std::string json;

 private:
  void append_dict(Dict entries, int64_t level) {
    if (style_.sorts_keys) std::ranges::stable_sort(entries, {}, &std::pair<std::string, Value>::first);
    append_items(entries, "{}", level, [&](const auto& item) {
      append_string(item.first);
      json += style_.key_separator;
      append(item.second, level + 1);
    });
  }
  void append_string(const std::string& text) {
    json += style_.ensures_ascii ? with_escapes(json_string_of(text)) : json_string_of(text);
  }
  template <class Items, class F>
  void append_items(const Items& items, std::string_view brackets, int64_t level, F&& append_item) {
    json += brackets[0];
    bool is_first = true;
    for (const auto& item : items) {
      if (!is_first) json += style_.item_separator;
      is_first = false;
      break_line(level + 1);
      append_item(item);
    }
    if (!is_first) break_line(level);
    json += brackets[1];
  }
  void break_line(int64_t level) {
    if (style_.indent >= 0) json += "\n" + std::string(static_cast<size_t>(style_.indent * level), ' ');
  }

  const JsonStyle& style_;
};

Value from_json(simdjson::dom::element json) {
  using Type = simdjson::dom::element_type;
  switch (json.type()) {
    case Type::ARRAY: {
      List list;
      for (const auto& item : json.get_array()) list.push_back(from_json(item));
      return list;
    }
    case Type::OBJECT: {
      Dict dict;
      for (const auto& [key, item] : json.get_object()) dict.emplace_back(key, from_json(item));
      return dict;
    }
    case Type::STRING:
      return std::string(json.get_string().value());
    case Type::INT64:
      return json.get_int64().value();
    case Type::BOOL:
      return json.get_bool().value();
    case Type::NULL_VALUE:
      return Value::None{};
    case Type::UINT64:
      throw NotSupported("an integer of JSON has more than 63 bits");
    default:
      return json.get_double().value();
  }
}
}  // namespace

Value::Value(std::string value) : held_(std::move(value)) {
  weight_ += std::ssize(string()) / kBytesOfWeight;
  require_limits();
}

Value::Value(List value) : held_(std::make_shared<const List>(std::move(value))) {
  for (const Value& item : list()) add_inner(item);
  require_limits();
}

Value::Value(Dict value) : held_(std::make_shared<Dict>(std::move(value))) {
  for (const auto& [key, item] : dict()) {
    weight_ += std::ssize(key) / kBytesOfWeight;
    add_inner(item);
  }
  require_limits();
}

Value Value::growing(Dict entries) {
  Value value(std::move(entries));
  value.depth_ = kMaxDepth;
  return value;
}

void Value::add_inner(const Value& value) {
  depth_ = std::max(depth_, value.depth_ + 1);
  weight_ += value.weight_;
}

void Value::require_limits() const {
  require<DataError>(depth_ <= kMaxDepth,
                     "the chat template nests lists and dicts more than {} deep, or puts a namespace into one",
                     kMaxDepth);
  require<DataError>(weight_ <= kMaxWeight, "the chat template makes {} of more than {} values or {} bytes of text",
                     kind(), kMaxWeight, kMaxWeight * kBytesOfWeight);
}

void Value::fail_as(std::string_view wanted) const {
  throw DataError(fmt::format("the chat template needs {} where it has {}", wanted, kind()));
}

void require_text_size(size_t size) {
  constexpr auto kMost = static_cast<size_t>(Value::kMaxWeight * kBytesOfWeight);
  require<DataError>(size <= kMost, "the chat template makes a text of more than {} bytes", kMost);
}

bool Value::is_true() const {
  if (is_undefined() || is_none()) return false;
  if (is_string()) return !string().empty();
  if (is_list()) return !list().empty();
  if (is_dict()) return !dict().empty();
  return !is_number() || number() != 0;
}

const Value* Value::find(std::string_view key) const {
  const Dict& entries = dict();
  const auto place = std::ranges::find(entries, key, &std::pair<std::string, Value>::first);
  return place == entries.end() ? nullptr : &place->second;
}

std::string_view Value::kind() const {
  if (is_undefined()) return "an undefined value";
  if (is_none()) return "None";
  if (is_string()) return "a string";
  if (is_list()) return "a list";
  if (is_dict()) return "a dict";
  return is_number() ? "a number" : "a function";
}

bool equal(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) return a.number() == b.number();
  if (a.is_string() && b.is_string()) return a.string() == b.string();
  if (a.is_list() && b.is_list()) return std::ranges::equal(a.list(), b.list(), equal);
  if (a.is_dict() && b.is_dict()) {
    if (a.dict().size() != b.dict().size()) return false;
    return std::ranges::all_of(a.dict(), [&](const auto& entry) {
      const Value* other = b.find(entry.first);
      return other != nullptr && equal(entry.second, *other);
    });
  }
  return (a.is_none() && b.is_none()) || (a.is_undefined() && b.is_undefined());
}

bool less(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) return a.number() < b.number();
  if (a.is_string() && b.is_string()) return a.string() < b.string();
  if (a.is_list() && b.is_list()) return std::ranges::lexicographical_compare(a.list(), b.list(), less);
  throw DataError(fmt::format("{} and {} have no order", a.kind(), b.kind()));
}

std::string text_of(const Value& value) {
  if (value.is_undefined()) return "";
  if (value.is_none()) return "None";
  if (value.is_string()) return value.string();
  if (value.is<bool>()) return value.integer() != 0 ? "True" : "False";
  if (value.is<int64_t>()) return fmt::format("{}", value.integer());
  if (value.is<double>()) return number_text(value.number());
  if (value.is_list() || value.is_dict()) return repr_of(value);
  throw NotSupported("a function cannot be printed");
}

std::string json_of(const Value& value, const JsonStyle& style) {
  require<NotSupported>(style.indent >= -1 && style.indent <= kMaxIndent,
                        "tojson: an indent of {} is not supported; 0 to {} are", style.indent, kMaxIndent);
  JsonWriter writer(style);
  writer.append(value, 0);
  return std::move(writer.json);
}

Value parse_json(std::string_view json, std::string_view where) {
  simdjson::dom::parser parser;
  simdjson::dom::element root;
  const simdjson::error_code error = parser.parse(json.data(), json.size()).get(root);
  require<DataError>(!error, "{} is not JSON: {}", where, simdjson::error_message(error));
  return from_json(root);
}

}  // namespace megatron::chat_template
