#include <algorithm>
#include <array>
#include <limits>

#include "megatron/base/error.h"
#include "megatron/tokenizers/chat_template/builtins.h"
#include "megatron/tokenizers/unicode.h"
#include "megatron/tokenizers/utf8.h"

namespace megatron::chat_template {
namespace {
using StringMethod = Value (*)(const std::string&, const Arguments&);
using DictMethod = Value (*)(const Value&, const Arguments&);

const std::string& string_argument(const Arguments& a, size_t place, std::string_view method) {
  require<DataError>(place < a.positional.size() && a.positional[place].is_string(), "{}: argument {} is not a string",
                     method, place + 1);
  return a.positional[place].string();
}

/// Says whether strip() takes a character away: white space, or one of the given.
bool is_stripped(char32_t c, const std::optional<std::string>& characters) {
  if (!characters) return is_white_space(c) || (c >= 0x1C && c <= 0x1F);
  for (size_t i = 0; i < characters->size(); i += utf8_length((*characters)[i]))
    if (code_point_at(*characters, i) == c) return true;
  return false;
}

std::string strip(std::string_view text, const Arguments& a, bool left, bool right) {
  std::optional<std::string> characters;
  if (!a.positional.empty() && !a.positional[0].is_none()) characters = string_argument(a, 0, "strip");
  while (left && !text.empty() && is_stripped(code_point_at(text, 0), characters))
    text.remove_prefix(utf8_length(text[0]));
  while (right && !text.empty()) {
    size_t start = text.size() - 1;
    while ((static_cast<unsigned char>(text[start]) & 0xC0) == 0x80) --start;
    if (!is_stripped(code_point_at(text, start), characters)) break;
    text = text.substr(0, start);
  }
  return std::string(text);
}

Value split(const std::string& text, const Arguments& a) {
  const Value most = argument(a, 1, "maxsplit", int64_t{-1});
  List parts;
  const auto may_split = [&] { return most.integer() < 0 || std::ssize(parts) < most.integer(); };
  if (a.positional.empty() || a.positional[0].is_none()) {
    require<NotSupported>(most.integer() < 0, "split: a number of splits at white space is not supported");
    for (size_t i = 0; i < text.size();) {
      size_t end = i;
      while (end < text.size() && !is_stripped(code_point_at(text, end), std::nullopt)) end += utf8_length(text[end]);
      if (end > i) parts.emplace_back(text.substr(i, end - i));
      i = end < text.size() ? end + utf8_length(text[end]) : end;
    }
    return parts;
  }
  const std::string& separator = string_argument(a, 0, "split");
  require<DataError>(!separator.empty(), "split: the separator is empty");
  size_t begin = 0;
  for (size_t at; may_split() && (at = text.find(separator, begin)) != std::string::npos; begin = at + separator.size())
    parts.emplace_back(text.substr(begin, at - begin));
  parts.emplace_back(text.substr(begin));
  return parts;
}

/// Splits from the right.
Value rsplit(const std::string& text, const Arguments& a) {
  const std::string& separator = string_argument(a, 0, "rsplit");
  require<DataError>(!separator.empty(), "rsplit: the separator is empty");
  const int64_t most = argument(a, 1, "maxsplit", int64_t{-1}).integer();
  List parts;
  size_t end = text.size();
  while (most < 0 || std::ssize(parts) < most) {
    const size_t at = end < separator.size() ? std::string::npos : text.rfind(separator, end - separator.size());
    if (at == std::string::npos) break;
    parts.emplace_back(text.substr(at + separator.size(), end - at - separator.size()));
    end = at;
  }
  parts.emplace_back(text.substr(0, end));
  std::ranges::reverse(parts);
  return parts;
}

bool ends_line(char32_t c) {
  return (c >= '\n' && c <= '\r') || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

Value splitlines(const std::string& text, const Arguments& a) {
  require<NotSupported>(a.positional.empty() && a.named.empty(), "splitlines: arguments are not supported");
  List lines;
  size_t begin = 0;
  for (size_t i = 0; i < text.size();) {
    const size_t size = text.compare(i, 2, "\r\n") == 0 ? 2 : utf8_length(text[i]);
    if (ends_line(code_point_at(text, i))) {
      lines.emplace_back(text.substr(begin, i - begin));
      begin = i + size;
    }
    i += size;
  }
  if (begin < text.size()) lines.emplace_back(text.substr(begin));
  return lines;
}

/// The place of a text in characters; -1 if it is not there.
Value place_of(const std::string& text, const Arguments& a, bool from_right, std::string_view method) {
  require<NotSupported>(a.positional.size() == 1, "{}: bounds are not supported", method);
  const std::string& wanted = string_argument(a, 0, method);
  const size_t at = from_right ? text.rfind(wanted) : text.find(wanted);
  if (at == std::string::npos) return int64_t{-1};
  return static_cast<int64_t>(count_code_points(std::string_view(text).substr(0, at)));
}

Value replace(const std::string& text, const Arguments& a) {
  const std::string &from = string_argument(a, 0, "replace"), &to = string_argument(a, 1, "replace");
  require<NotSupported>(!from.empty(), "replace: an empty text is not supported");
  const Value most = argument(a, 2, "count", Value::None{});
  std::string result;
  size_t begin = 0;
  constexpr int64_t kAll = std::numeric_limits<int64_t>::max();
  int64_t left = most.is_none() || most.integer() < 0 ? kAll : most.integer();
  for (size_t at; left > 0 && (at = text.find(from, begin)) != std::string::npos; begin = at + from.size(), --left) {
    result += text.substr(begin, at - begin) + to;
    require_text_size(result.size());
  }
  return result + text.substr(begin);
}

/// Cases of characters beyond ASCII depend on their neighbours and change lengths.
const std::string& ascii(const std::string& text, std::string_view method) {
  require<NotSupported>(std::ranges::all_of(text, [](char c) { return static_cast<unsigned char>(c) < 0x80; }),
                        "{} of a text with characters beyond ASCII is not supported", method);
  return text;
}
std::string mapped(std::string text, int (*map)(int)) {
  for (char& c : text) c = static_cast<char>(map(static_cast<unsigned char>(c)));
  return text;
}

Value capitalize(const std::string& text, const Arguments&) {
  std::string result = mapped(ascii(text, "capitalize"), std::tolower);
  if (!result.empty()) result[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(result[0])));
  return result;
}

/// Python's title(): every letter behind something else is a capital.
Value title(const std::string& text, const Arguments&) {
  std::string result = mapped(ascii(text, "title"), std::tolower);
  bool is_inside = false;
  for (char& c : result) {
    const bool is_letter = c >= 'a' && c <= 'z';
    if (is_letter && !is_inside) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    is_inside = is_letter;
  }
  return result;
}

struct NamedStringMethod {
  std::string_view name;
  StringMethod call;
};
constexpr std::array<NamedStringMethod, 18> kStringMethods = {{
    {"startswith",
     [](const std::string& s, const Arguments& a) -> Value {
       return s.starts_with(string_argument(a, 0, "startswith"));
     }},
    {"endswith",
     [](const std::string& s, const Arguments& a) -> Value { return s.ends_with(string_argument(a, 0, "endswith")); }},
    {"strip", [](const std::string& s, const Arguments& a) -> Value { return strip(s, a, true, true); }},
    {"lstrip", [](const std::string& s, const Arguments& a) -> Value { return strip(s, a, true, false); }},
    {"rstrip", [](const std::string& s, const Arguments& a) -> Value { return strip(s, a, false, true); }},
    {"split", split},
    {"replace", replace},
    {"upper", [](const std::string& s, const Arguments&) -> Value { return mapped(ascii(s, "upper"), std::toupper); }},
    {"lower", [](const std::string& s, const Arguments&) -> Value { return mapped(ascii(s, "lower"), std::tolower); }},
    {"capitalize", capitalize},
    {"title", title},
    {"rsplit", rsplit},
    {"splitlines", splitlines},
    {"find", [](const std::string& s, const Arguments& a) -> Value { return place_of(s, a, false, "find"); }},
    {"rfind", [](const std::string& s, const Arguments& a) -> Value { return place_of(s, a, true, "rfind"); }},
    {"removeprefix",
     [](const std::string& s, const Arguments& a) -> Value {
       const std::string& prefix = string_argument(a, 0, "removeprefix");
       return s.starts_with(prefix) ? s.substr(prefix.size()) : s;
     }},
    {"removesuffix",
     [](const std::string& s, const Arguments& a) -> Value {
       const std::string& suffix = string_argument(a, 0, "removesuffix");
       return s.ends_with(suffix) ? s.substr(0, s.size() - suffix.size()) : s;
     }},
    {"join",
     [](const std::string& s, const Arguments& a) -> Value {
       return call_filter("join", {{argument(a, 0, "", List()), s}, {}});
     }},
}};

struct NamedDictMethod {
  std::string_view name;
  DictMethod call;
};
constexpr std::array<NamedDictMethod, 4> kDictMethods = {{
    {"items",
     [](const Value& object, const Arguments&) -> Value {
       List items;
       for (const auto& [key, value] : object.dict()) items.push_back(List{key, value});
       return items;
     }},
    {"keys", [](const Value& object, const Arguments&) -> Value { return elements_of(object); }},
    {"values",
     [](const Value& object, const Arguments&) -> Value {
       List values;
       for (const auto& [key, value] : object.dict()) values.push_back(value);
       return values;
     }},
    {"get",
     [](const Value& object, const Arguments& a) -> Value {
       const Value* found = object.find(string_argument(a, 0, "get"));
       return found ? *found : argument(a, 1, "default", Value::None{});
     }},
}};
}  // namespace

bool has_method(const Value& object, std::string_view name) {
  if (object.is_string())
    return std::ranges::find(kStringMethods, name, &NamedStringMethod::name) != kStringMethods.end();
  return object.is_dict() && std::ranges::find(kDictMethods, name, &NamedDictMethod::name) != kDictMethods.end();
}

Value call_method(const Value& object, std::string_view name, const Arguments& arguments) {
  require<NotSupported>(has_method(object, name), "the method '{}' of {} is not supported", name, object.kind());
  if (object.is_string())
    return std::ranges::find(kStringMethods, name, &NamedStringMethod::name)->call(object.string(), arguments);
  return std::ranges::find(kDictMethods, name, &NamedDictMethod::name)->call(object, arguments);
}

}  // namespace megatron::chat_template
