#include "megatron/datasets/python_json.h"

#include <fmt/core.h>

#include <array>
#include <charconv>
#include <cstddef>
#include <iterator>

namespace megatron {
namespace {

struct CodePoint {
  uint32_t value;
  size_t num_bytes;
};

/// The first code point of non-empty `text`; a byte that starts no valid sequence gives U+DC00 + byte.
CodePoint decode_utf8(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<unsigned char>(text[i])); };
  const uint32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const size_t length = lead >= 0xf0 && lead <= 0xf4 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc2 ? 2 : 0;
  const CodePoint invalid = {0xdc00 + lead, 1};
  if (length == 0 || lead > 0xf4 || text.size() < length) return invalid;
  uint32_t value = lead & (0x7fu >> length);
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return invalid;
    value = value << 6 | (byte(i) & 0x3f);
  }
  constexpr std::array<uint32_t, 5> kSmallest = {0, 0, 0x80, 0x800, 0x10000};
  if (value < kSmallest[length] || value > 0x10ffff || (value >= 0xd800 && value < 0xe000)) return invalid;
  return {value, length};
}

void append_escaped(std::string& out, uint32_t code) {
  switch (code) {
    case '"':
      out += "\\\"";
      return;
    case '\\':
      out += "\\\\";
      return;
    case '\n':
      out += "\\n";
      return;
    case '\r':
      out += "\\r";
      return;
    case '\t':
      out += "\\t";
      return;
    case '\f':
      out += "\\f";
      return;
    case '\b':
      out += "\\b";
      return;
    default:
      break;
  }
  if (code >= ' ' && code <= '~') {
    out.push_back(static_cast<char>(code));
  } else if (code < 0x10000) {
    fmt::format_to(std::back_inserter(out), "\\u{:04x}", code);
  } else {
    fmt::format_to(std::back_inserter(out), "\\u{:04x}\\u{:04x}", 0xd800 + ((code - 0x10000) >> 10),
                   0xdc00 + ((code - 0x10000) & 0x3ff));
  }
}

}  // namespace

std::string python_float(double value) {
  if (value != value) return "NaN";
  if (value - value != 0) return value > 0 ? "Infinity" : "-Infinity";
  std::array<char, 40> buffer;
  const auto scientific =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, std::chars_format::scientific);
  const std::string_view text(buffer.data(), static_cast<size_t>(scientific.ptr - buffer.data()));
  const size_t e = text.find('e');
  int exponent = 0;
  const char* digits = text.data() + e + (text[e + 1] == '+' ? 2 : 1);
  std::from_chars(digits, text.data() + text.size(), exponent);
  // Python leaves positional notation outside of these exponents; to_chars writes the rest as Python does.
  if (exponent < -4 || exponent >= 16) return std::string(text);
  const auto fixed = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, std::chars_format::fixed);
  std::string out(buffer.data(), fixed.ptr);
  if (out.find('.') == std::string::npos) out += ".0";
  return out;
}

void PythonJson::start_line() {
  text_.push_back('\n');
  text_.append(4 * has_items_.size(), ' ');
}

void PythonJson::start_value() {
  if (after_key_) {
    after_key_ = false;
    return;
  }
  if (has_items_.empty()) return;
  if (has_items_.back()) text_.push_back(',');
  has_items_.back() = true;
  start_line();
}

PythonJson& PythonJson::open(char bracket) {
  start_value();
  text_.push_back(bracket);
  has_items_.push_back(false);
  return *this;
}

PythonJson& PythonJson::close(char bracket) {
  const bool has_items = has_items_.back();
  has_items_.pop_back();
  if (has_items) start_line();
  text_.push_back(bracket);
  return *this;
}

PythonJson& PythonJson::key(std::string_view name) {
  string(name);
  text_ += ": ";
  after_key_ = true;
  return *this;
}

PythonJson& PythonJson::value(std::string_view text) {
  start_value();
  text_ += text;
  return *this;
}

PythonJson& PythonJson::string(std::string_view value) {
  start_value();
  text_.push_back('"');
  while (!value.empty()) {
    const CodePoint code = decode_utf8(value);
    append_escaped(text_, code.value);
    value.remove_prefix(code.num_bytes);
  }
  text_.push_back('"');
  return *this;
}

PythonJson& PythonJson::integer(int64_t number) { return value(std::to_string(number)); }
PythonJson& PythonJson::number(double number) { return value(python_float(number)); }
PythonJson& PythonJson::null() { return value("null"); }

}  // namespace megatron
