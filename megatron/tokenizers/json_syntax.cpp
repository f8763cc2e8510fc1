#include "megatron/tokenizers/json_syntax.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

namespace megatron {
namespace {

constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }
constexpr bool is_hex(char c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }
constexpr bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

/// Bytes that a string may not simply go on after: its end, escapes, control characters.
constexpr std::array<bool, 256> kStops = [] {
  std::array<bool, 256> stops{};
  for (size_t c = 0; c < 0x20; ++c) stops[c] = true;
  stops['"'] = stops['\\'] = true;
  return stops;
}();

/// Reads from the front. Each function returns false after it has noted the fault.
class Checker {
 public:
  explicit Checker(std::string_view text) : text_(text) {}

  std::optional<JsonFault> fault() {
    skip_space();
    if (!(peek() == '{' ? objects_and_arrays() : fail("'{'"))) return fault_;
    skip_space();
    if (at_ < text_.size()) fail("nothing after the object");
    return fault_;
  }

 private:
  /// '\0' at the end, which no rule allows anywhere.
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  void skip_space() {
    while (is_space(peek())) ++at_;
  }
  bool take(char c) {
    if (peek() != c) return false;
    ++at_;
    return true;
  }
  bool take(std::string_view word) {
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }
  bool fail(std::string_view expected) {
    if (!fault_) fault_ = JsonFault{at_, std::string(expected)};
    return false;
  }

  /// From the '{' of the outermost object to its '}'. Whatever is open stands in `closers_`: no depth is too large.
  bool objects_and_arrays() {
    bool is_open = open();
    while (is_open && !closers_.empty()) {
      skip_space();
      if (take(closers_.back())) {
        closers_.pop_back();
        is_open = after_value();
      } else {
        is_open = element();
      }
    }
    return is_open;
  }
  bool open() {
    closers_.push_back(text_[at_++] == '{' ? '}' : ']');
    return true;
  }
  /// The next element of the innermost that is open, with what follows unless it is one that opens.
  bool element() {
    if (closers_.back() == '}') {
      if (peek() != '"') return fail("a key in double quotes or '}'");
      if (!string()) return false;
      skip_space();
      if (!take(':')) return fail("':' after the key");
      skip_space();
    }
    if (peek() == '{' || peek() == '[') return open();
    return scalar() && after_value();
  }
  /// A comma with another element behind it, or what closes.
  bool after_value() {
    skip_space();
    if (closers_.empty() || peek() == closers_.back()) return true;
    if (!take(',')) return fail(closers_.back() == '}' ? "a comma or '}'" : "a comma or ']'");
    skip_space();
    return peek() == closers_.back() ? fail("another element after the comma") : true;
  }
  bool scalar() {
    if (peek() == '"') return string();
    for (const std::string_view word : {"true", "false", "null", "NaN", "Infinity", "-Infinity"})
      if (take(word)) return true;
    return number();
  }
  bool string() {
    for (++at_;; ++at_) {
      while (at_ < text_.size() && !kStops[static_cast<uint8_t>(text_[at_])]) ++at_;
      if (take('"')) return true;
      if (at_ == text_.size()) return fail("the '\"' that ends a string");
      if (peek() != '\\') return fail("an escape such as \\n or \\t instead of a control character");
      if (!escape()) return false;
    }
  }
  /// From the backslash to the last character of the escape.
  bool escape() {
    ++at_;
    if (peek() == 'u') {
      for (int i = 0; i < 4; ++i) {
        ++at_;
        if (!is_hex(peek())) return fail("four hexadecimal digits after \\u");
      }
      return true;
    }
    constexpr std::string_view kEscapes = "\"\\/bfnrt";
    return at_ < text_.size() && kEscapes.find(peek()) != std::string_view::npos
               ? true
               : fail("one of \" \\ / b f n r t u after a backslash");
  }
  bool digits() {
    if (!is_digit(peek())) return fail("a digit");
    while (is_digit(peek())) ++at_;
    return true;
  }
  bool number() {
    const bool is_negative = take('-');
    if (!is_negative && !is_digit(peek())) return fail("a value");
    if (!take('0') && !digits()) return false;
    if (take('.') && !digits()) return false;
    if (!take('e') && !take('E')) return true;
    if (!take('+')) take('-');
    return digits();
  }

  std::string_view text_;
  size_t at_ = 0;
  std::vector<char> closers_;
  std::optional<JsonFault> fault_;
};

}  // namespace

std::optional<JsonFault> find_json_fault(std::string_view text) { return Checker(text).fault(); }

}  // namespace megatron
