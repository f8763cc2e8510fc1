#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>

#include "megatron/base/error.h"
#include "megatron/tokenizers/chat_template/builtins.h"
#include "megatron/tokenizers/utf8.h"

namespace megatron::chat_template {
namespace {
using Function = Value (*)(const Arguments&);
struct Filter {
  std::string_view name;
  Function call;
};

const Value& value_of(const Arguments& a) { return a.positional.at(0); }

/// The filtered value's text, changed by a method of strings.
template <size_t N>
struct MethodName {
  char text[N];
  constexpr MethodName(const char (&name)[N]) { std::copy_n(name, N, text); }
};
template <MethodName kName>
Value string_method(const Arguments& a) {
  return call_method(text_of(value_of(a)), kName.text, {List(a.positional.begin() + 1, a.positional.end()), a.named});
}

Value length(const Arguments& a) { return static_cast<int64_t>(elements_of(value_of(a)).size()); }

Value first(const Arguments& a) {
  const List items = elements_of(value_of(a));
  return items.empty() ? Value() : items.front();
}

Value last(const Arguments& a) {
  const List items = elements_of(value_of(a));
  return items.empty() ? Value() : items.back();
}

Value list(const Arguments& a) { return elements_of(value_of(a)); }
Value string(const Arguments& a) { return text_of(value_of(a)); }
Value items(const Arguments& a) {
  return value_of(a).is_undefined() ? Value(List()) : call_method(value_of(a), "items", {});
}

Value default_value(const Arguments& a) {
  const bool replaces_false = argument(a, 2, "boolean", false).is_true();
  const bool is_missing = value_of(a).is_undefined() || (replaces_false && !value_of(a).is_true());
  return is_missing ? argument(a, 1, "default_value", "") : value_of(a);
}

/// transformers' tojson, whose arguments come in this order.
Value tojson(const Arguments& a) {
  for (const auto& [name, value] : a.named)
    require<NotSupported>(name == "ensure_ascii" || name == "indent" || name == "separators" || name == "sort_keys",
                          "tojson: the argument {} is not supported", name);
  JsonStyle style{.sorts_keys = argument(a, 4, "sort_keys", false).is_true(),
                  .ensures_ascii = argument(a, 1, "ensure_ascii", false).is_true()};
  const Value indent = argument(a, 2, "indent", Value::None{});
  if (!indent.is_none()) style.indent = indent.integer(), style.item_separator = ",";
  const Value separators = argument(a, 3, "separators", Value::None{});
  if (!separators.is_none()) {
    const List& pair = separators.list();
    require<DataError>(pair.size() == 2, "tojson: {} separators instead of 2", pair.size());
    style.item_separator = pair[0].string(), style.key_separator = pair[1].string();
  }
  return json_of(value_of(a), style);
}

/// Jinja's title: words begin behind hyphens, brackets and white space, unlike those of the method.
Value title(const Arguments& a) {
  const std::string text = call_method(text_of(value_of(a)), "lower", {}).string();
  std::string result;
  bool begins_word = true;
  for (const char c : text) {
    result += begins_word ? static_cast<char>(std::toupper(static_cast<unsigned char>(c))) : c;
    begins_word = std::string_view(" \t\n\r\f\v-({[<\x1c\x1d\x1e\x1f").find(c) != std::string_view::npos;
  }
  return result;
}

/// Each line but the first, and unless asked for no empty one, gets spaces or a text in front.
Value indent(const Arguments& a) {
  constexpr int64_t kMaxWidth = 1000;
  const Value width = argument(a, 1, "width", int64_t{4});
  require<NotSupported>(width.is_string() || width.integer() <= kMaxWidth, "indent: a width above {} is not supported",
                        kMaxWidth);
  const std::string margin =
      width.is_string() ? width.string() : std::string(static_cast<size_t>(std::max<int64_t>(width.integer(), 0)), ' ');
  const bool with_first = argument(a, 2, "first", false).is_true(),
             with_blank = argument(a, 3, "blank", false).is_true();
  const Value lines = call_method(text_of(value_of(a)) + "\n", "splitlines", {});
  std::string result;
  bool is_first = true;
  for (const Value& line : lines.list()) {
    if (!is_first) result += "\n";
    if (is_first ? with_first : with_blank || !line.string().empty()) result += margin;
    result += line.string();
    require_text_size(result.size());
    is_first = false;
  }
  return result;
}

/// "a.b" or a number: Jinja's attribute of an item.
Value attribute_at(Value item, const Value& path) {
  if (path.is_integer()) {
    const List elements = elements_of(item);
    const auto index = static_cast<size_t>(path.integer());
    return index < elements.size() ? elements[index] : Value();
  }
  std::string_view names = path.string();
  while (true) {
    const size_t dot = std::min(names.find('.'), names.size());
    item = attribute_of(item, names.substr(0, dot));
    if (dot == names.size()) return item;
    names.remove_prefix(dot + 1);
  }
}

Value join(const Arguments& a) {
  const std::string separator = text_of(argument(a, 1, "d", ""));
  const Value attribute = argument(a, 2, "attribute", Value::None{});
  std::string result;
  bool is_first = true;
  for (const Value& item : elements_of(value_of(a))) {
    if (!is_first) result += separator;
    is_first = false;
    result += text_of(attribute.is_none() ? item : attribute_at(item, attribute));
    require_text_size(result.size());
  }
  return result;
}

Value map(const Arguments& a) {
  const Value attribute = argument(a, SIZE_MAX, "attribute", Value::None{});
  const Value otherwise = argument(a, SIZE_MAX, "default", Value());
  List result;
  for (const Value& item : elements_of(value_of(a))) {
    if (!attribute.is_none()) {
      const Value found = attribute_at(item, attribute);
      result.push_back(found.is_undefined() ? otherwise : found);
      continue;
    }
    const std::string filter = text_of(argument(a, 1, "filter", ""));
    require<NotSupported>(is_filter(filter), "map: the filter '{}' is not supported", filter);
    Arguments inner{{item}, a.named};
    if (a.positional.size() > 2)
      inner.positional.insert(inner.positional.end(), a.positional.begin() + 2, a.positional.end());
    result.push_back(call_filter(filter, inner));
  }
  return result;
}

/// Items whose value, or whose attribute, passes a test; `wanted` is what the test must say.
List select(const Arguments& a, bool by_attribute, bool wanted) {
  const size_t test_place = by_attribute ? 2 : 1;
  List result;
  for (const Value& item : elements_of(value_of(a))) {
    const Value tested = by_attribute ? attribute_at(item, argument(a, 1, "attribute", "")) : item;
    bool passes = tested.is_true();
    if (a.positional.size() > test_place) {
      const std::string test = text_of(a.positional[test_place]);
      require<NotSupported>(is_test(test), "the test '{}' is not supported", test);
      Arguments inner{{tested}, {}};
      inner.positional.insert(inner.positional.end(), a.positional.begin() + static_cast<ptrdiff_t>(test_place) + 1,
                              a.positional.end());
      passes = call_test(test, inner);
    }
    if (passes == wanted) result.push_back(item);
  }
  return result;
}

Value sort(const Arguments& a) {
  const bool descends = argument(a, 1, "reverse", false).is_true();
  const bool has_case = argument(a, 2, "case_sensitive", false).is_true();
  const Value attribute = argument(a, 3, "attribute", Value::None{});
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& item : elements_of(value_of(a))) {
    Value key = attribute.is_none() ? item : attribute_at(item, attribute);
    if (key.is_string() && !has_case) key = call_method(key, "lower", {});
    keyed.emplace_back(std::move(key), item);
  }
  std::ranges::stable_sort(
      keyed, [&](const auto& x, const auto& y) { return descends ? less(y.first, x.first) : less(x.first, y.first); });
  List result;
  for (auto& [key, item] : keyed) result.push_back(std::move(item));
  return result;
}

Value reverse(const Arguments& a) {
  List items = elements_of(value_of(a));
  std::ranges::reverse(items);
  if (!value_of(a).is_string()) return items;
  std::string text;
  for (const Value& item : items) text += item.string();
  return text;
}

Value integer(const Arguments& a) {
  if (value_of(a).is_integer()) return value_of(a).integer();
  if (value_of(a).is_number()) {
    constexpr double kEnd = 0x1p63;
    const double number = value_of(a).number();
    require<DataError>(number > -kEnd && number < kEnd, "int: {} has more than 63 bits", number);
    return static_cast<int64_t>(number);
  }
  const std::string text = text_of(value_of(a));
  int64_t result = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), result);
  return error == std::errc() && end == text.data() + text.size() ? Value(result)
                                                                  : argument(a, 1, "default", int64_t{0});
}

Value absolute(const Arguments& a) {
  if (value_of(a).is_integer()) {
    const int64_t number = value_of(a).integer();
    require<DataError>(number != INT64_MIN, "abs: {} has no absolute value of 63 bits", number);
    return std::abs(number);
  }
  require<DataError>(value_of(a).is_number(), "abs: {} is no number", value_of(a).kind());
  return std::abs(value_of(a).number());
}

constexpr std::array<Filter, 31> kFilters = {{
    {"trim", string_method<"strip">},
    {"upper", string_method<"upper">},
    {"lower", string_method<"lower">},
    {"capitalize", string_method<"capitalize">},
    {"replace", string_method<"replace">},
    {"length", length},
    {"count", length},
    {"first", first},
    {"last", last},
    {"list", list},
    {"string", string},
    {"safe", string},
    {"items", items},
    {"default", default_value},
    {"d", default_value},
    {"tojson", tojson},
    {"title", title},
    {"indent", indent},
    {"join", join},
    {"map", map},
    {"select", [](const Arguments& a) -> Value { return select(a, false, true); }},
    {"reject", [](const Arguments& a) -> Value { return select(a, false, false); }},
    {"selectattr", [](const Arguments& a) -> Value { return select(a, true, true); }},
    {"rejectattr", [](const Arguments& a) -> Value { return select(a, true, false); }},
    {"sort", sort},
    {"reverse", reverse},
    {"int", integer},
    {"abs", absolute},
    {"dictsort",
     [](const Arguments& a) -> Value {
       return sort({{call_method(value_of(a), "items", {})}, a.named});
     }},
    {"bool", [](const Arguments& a) -> Value { return value_of(a).is_true(); }},
    {"keys", [](const Arguments& a) -> Value { return elements_of(value_of(a)); }},
}};
}  // namespace

bool is_filter(std::string_view name) { return std::ranges::find(kFilters, name, &Filter::name) != kFilters.end(); }

Value call_filter(std::string_view name, const Arguments& arguments) {
  return std::ranges::find(kFilters, name, &Filter::name)->call(arguments);
}

Value argument(const Arguments& arguments, size_t place, std::string_view name, const Value& otherwise) {
  if (place < arguments.positional.size()) return arguments.positional[place];
  const auto named = std::ranges::find(arguments.named, name, &std::pair<std::string, Value>::first);
  return named != arguments.named.end() ? named->second : otherwise;
}

List elements_of(const Value& value) {
  if (value.is_list()) return value.list();
  List result;
  if (value.is_dict()) {
    for (const auto& [key, item] : value.dict()) result.emplace_back(key);
  } else if (value.is_string()) {
    const std::string& text = value.string();
    for (size_t i = 0, size; i < text.size(); i += size) {
      size = utf8_length(text[i]);
      result.emplace_back(text.substr(i, size));
    }
  } else {
    require<DataError>(value.is_undefined(), "{} has no elements", value.kind());
  }
  return result;
}

Value attribute_of(const Value& object, std::string_view name) {
  require<DataError>(!object.is_undefined(), "an undefined value has no '{}'", name);
  if (!object.is_dict()) return {};
  const Value* found = object.find(name);
  return found ? *found : Value();
}

}  // namespace megatron::chat_template
