#include "megatron/tokenizers/oniguruma_syntax.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>
#include <utility>
#include <vector>

#include "megatron/base/error.h"
#include "megatron/tokenizers/regex_splitter.h"

namespace megatron {
namespace {
/// Oniguruma's \w, to stand inside of a character class.
constexpr std::string_view kWordClass = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";
constexpr std::array<std::pair<std::string_view, std::string_view>, 6> kPosixClasses = {
    {{"[:alpha:]", R"(\p{Alphabetic})"},
     {"[:digit:]", R"(\p{Nd})"},
     {"[:alnum:]", R"(\p{Alphabetic}\p{Nd})"},
     {"[:space:]", R"(\s)"},
     {"[:upper:]", R"(\p{Uppercase})"},
     {"[:lower:]", R"(\p{Lowercase})"}}};

bool is_script(std::string_view name) {
  try {
    RegexPattern(fmt::format("\\p{{sc:{}}}", name));
    return true;
  } catch (const ConfigError&) {
    return false;
  }
}

/// Reads a pattern from left to right; the last atom is what a quantifier behind it would repeat.
class Translator {
 public:
  explicit Translator(std::string_view pattern) : pattern_(pattern) {}

  std::string run() {
    while (offset_ < pattern_.size()) translate_one();
    return std::move(result_);
  }

 private:
  [[noreturn]] void refuse(std::string_view construct) const {
    throw NotSupported(fmt::format("the regular expression {} has {} at offset {}, which is not supported", pattern_,
                                   construct, offset_));
  }

  bool next_is(std::string_view text) const { return pattern_.substr(offset_).starts_with(text); }

  void copy(size_t count) {
    result_ += pattern_.substr(offset_, count);
    offset_ += count;
  }

  void emit_atom(std::string_view text) {
    atom_ = result_.size();
    result_ += text;
  }

  void translate_one() {
    switch (pattern_[offset_]) {
      case '\\':
        return translate_escape(false);
      case '[':
        return translate_class();
      case '(':
        return open_group();
      case ')':
        return close_group();
      case '^':
      case '$':
        emit_atom(fmt::format("(?m:{})", pattern_[offset_]));
        ++offset_;
        return;
      case '{':
        if (translate_interval()) return;
        break;
      case '*':
      case '+':
      case '?':
      case '|':
        return copy(1);
      default:
        break;
    }
    atom_ = result_.size();
    copy(1);
    while (offset_ < pattern_.size() && (static_cast<unsigned char>(pattern_[offset_]) & 0xC0) == 0x80) copy(1);
  }

  void open_group() {
    groups_.push_back(result_.size());
    if (!next_is("(?")) return copy(1);
    const std::string_view rest = pattern_.substr(offset_ + 2);
    if (rest.starts_with("<") || rest.starts_with("=") || rest.starts_with("!") || rest.starts_with(">") ||
        rest.starts_with("#"))
      return copy(3);
    // Options: Ruby's m is Perl's s.
    const size_t end = rest.find_first_of(":)");
    const std::string_view options = rest.substr(0, end);
    if (end == std::string_view::npos || options.find_first_not_of("imx-") != std::string_view::npos)
      refuse(fmt::format("the group (?{}", rest.substr(0, 8)));
    result_ += "(?";
    for (const char c : options) result_ += c == 'm' ? 's' : c;
    offset_ += 2 + options.size();
    if (pattern_[offset_] == ':') copy(1);
  }

  void close_group() {
    if (!groups_.empty()) {
      atom_ = groups_.back();
      groups_.pop_back();
    }
    copy(1);
  }

  /// {n}, {n,}, {n,m} and {,m}. @return false if the brace is a character.
  bool translate_interval() {
    const size_t end = pattern_.find('}', offset_);
    if (end == std::string_view::npos) return false;
    const std::string_view interval = pattern_.substr(offset_ + 1, end - offset_ - 1);
    const bool is_interval = !interval.empty() && interval != "," &&
                             interval.find_first_not_of("0123456789,") == std::string_view::npos &&
                             std::ranges::count(interval, ',') <= 1;
    if (!is_interval) return false;
    const char after = end + 1 < pattern_.size() ? pattern_[end + 1] : '\0';
    if (after == '?' && interval.find(',') == std::string_view::npos) refuse("a quantifier {n}?");
    result_ += fmt::format("{{{}{}}}", interval.starts_with(',') ? "0" : "", interval);
    offset_ = end + 1;
    if (after != '+') return true;
    // In Ruby the plus repeats the whole; in Perl it would make the interval possessive.
    result_.insert(atom_, "(?:");
    result_ += ")+";
    ++offset_;
    return true;
  }

  void translate_class() {
    atom_ = result_.size();
    copy(next_is("[^") ? 2 : 1);
    if (next_is("]")) copy(1);
    while (offset_ < pattern_.size() && pattern_[offset_] != ']') {
      if (pattern_[offset_] == '\\') {
        translate_escape(true);
      } else if (pattern_[offset_] == '[') {
        translate_posix_class();
      } else {
        if (next_is("&&")) refuse("an intersection && of character classes");
        copy(1);
      }
    }
    if (offset_ < pattern_.size()) copy(1);
  }

  void translate_posix_class() {
    for (const auto& [name, properties] : kPosixClasses) {
      if (!next_is(name)) continue;
      result_ += properties;
      offset_ += name.size();
      return;
    }
    refuse("a character class inside of a character class");
  }

  void translate_escape(bool in_class) {
    if (!in_class) atom_ = result_.size();
    if (offset_ + 1 == pattern_.size()) refuse("a backslash at its end");
    const char c = pattern_[offset_ + 1];
    if (c == 'p' || c == 'P') return translate_property();
    if (c == 'u') return translate_code_point();
    if (const auto replaced = replacement(c, in_class)) {
      result_ += *replaced;
      offset_ += 2;
      return;
    }
    if (std::isalpha(static_cast<unsigned char>(c)) &&
        std::string_view("sSdDtnrfvaexAzZ").find(c) == std::string_view::npos)
      refuse(fmt::format("the escape \\{}", c));
    copy(2);
    while (offset_ < pattern_.size() && (static_cast<unsigned char>(pattern_[offset_]) & 0xC0) == 0x80) copy(1);
  }

  std::optional<std::string> replacement(char escape, bool in_class) const {
    const std::string word(kWordClass);
    if (escape == 'w') return in_class ? word : "[" + word + "]";
    if (escape == 'h') return in_class ? "0-9A-Fa-f" : "[0-9A-Fa-f]";
    if (in_class) return std::nullopt;
    if (escape == 'W') return "[^" + word + "]";
    if (escape == 'b') return fmt::format("(?:(?<=[{0}])(?![{0}])|(?<![{0}])(?=[{0}]))", word);
    return std::nullopt;
  }

  /// PCRE2's \p{Han} has the characters whose Script_Extensions hold Han, Oniguruma's those whose Script it is.
  void translate_property() {
    const size_t end = pattern_.find('}', offset_);
    if (offset_ + 2 >= pattern_.size() || pattern_[offset_ + 2] != '{' || end == std::string_view::npos)
      refuse("a property without braces");
    const std::string_view name = pattern_.substr(offset_ + 3, end - offset_ - 3);
    if (name.size() > 2 && !name.starts_with('^') && is_script(name)) {
      result_ += fmt::format("\\{}{{sc:{}}}", pattern_[offset_ + 1], name);
      offset_ = end + 1;
      return;
    }
    copy(end + 1 - offset_);
  }

  void translate_code_point() {
    const std::string_view digits = pattern_.substr(offset_ + 2, 4);
    if (digits.size() < 4 || digits.find_first_not_of("0123456789abcdefABCDEF") != std::string_view::npos)
      refuse("an escape \\u without four hexadecimal digits");
    result_ += fmt::format("\\x{{{}}}", digits);
    offset_ += 6;
  }

  std::string_view pattern_;
  size_t offset_ = 0;
  std::string result_;
  size_t atom_ = 0;             // where the last atom starts in the result
  std::vector<size_t> groups_;  // where the open groups start in the result
};
}  // namespace

std::string perl_from_oniguruma(std::string_view pattern) { return Translator(pattern).run(); }

std::string quoted_pattern(std::string_view text) {
  std::string result;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x80 && !std::isalnum(byte))
      result += fmt::format("\\x{{{:x}}}", static_cast<unsigned>(byte));
    else
      result += c;
  }
  return result;
}

}  // namespace megatron
