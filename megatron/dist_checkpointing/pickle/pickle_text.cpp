#include "megatron/dist_checkpointing/pickle/pickle_text.h"

#include <algorithm>
#include <charconv>
#include <cstdint>

#include "megatron/base/error.h"

namespace megatron::pickle {
namespace {

void append_utf8(std::string& text, uint32_t code_point) {
  const auto continuation = [&](int shift) {
    text.push_back(static_cast<char>(0x80 | ((code_point >> shift) & 0x3F)));
  };
  if (code_point < 0x80) {
    text.push_back(static_cast<char>(code_point));
  } else if (code_point < 0x800) {
    text.push_back(static_cast<char>(0xC0 | (code_point >> 6)));
    continuation(0);
  } else if (code_point < 0x10000) {
    text.push_back(static_cast<char>(0xE0 | (code_point >> 12)));
    continuation(6);
    continuation(0);
  } else {
    text.push_back(static_cast<char>(0xF0 | (code_point >> 18)));
    continuation(12);
    continuation(6);
    continuation(0);
  }
}

template <class Number, class... Base>
Number parse(std::string_view text, Base... base) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base...);
  require<CheckpointError>(error == std::errc() && end == text.data() + text.size(), "[pickle] \"{}\" is not a number",
                           text);
  return value;
}

}  // namespace

std::string decode_raw_unicode_escape(std::string_view text) {
  std::string decoded;
  for (size_t at = 0; at < text.size();) {
    const bool is_escape = text[at] == '\\' && at + 1 < text.size() && (text[at + 1] == 'u' || text[at + 1] == 'U');
    if (!is_escape) {
      append_utf8(decoded, static_cast<unsigned char>(text[at++]));
      continue;
    }
    const size_t num_digits = text[at + 1] == 'u' ? 4 : 8;
    require<CheckpointError>(text.size() - at - 2 >= num_digits, "[pickle] text ends within an escape");
    const auto code_point = parse<uint32_t>(text.substr(at + 2, num_digits), 16);
    require<CheckpointError>(code_point <= 0x10FFFF, "[pickle] {:#x} is not a character", code_point);
    append_utf8(decoded, code_point);
    at += 2 + num_digits;
  }
  return decoded;
}

std::string decode_decimal(std::string_view text) {
  constexpr size_t kMaxDigits = 4300;
  if (text.ends_with('L')) text.remove_suffix(1);
  const bool negative = text.starts_with('-');
  if (negative) text.remove_prefix(1);
  require<CheckpointError>(!text.empty() && text.size() <= kMaxDigits, "[pickle] a number of {} digits", text.size());
  std::string magnitude(1, '\0');
  for (const char digit : text) {
    require<CheckpointError>(digit >= '0' && digit <= '9', "[pickle] '{}' in a number", digit);
    int carry = digit - '0';
    for (char& byte : magnitude) {
      carry += 10 * static_cast<unsigned char>(byte);
      byte = static_cast<char>(carry);
      carry >>= 8;
    }
    if (carry != 0) magnitude.push_back(static_cast<char>(carry));
  }
  if (magnitude.back() & 0x80) magnitude.push_back('\0');
  if (!negative) return magnitude;
  int carry = 1;
  for (char& byte : magnitude) {
    carry += static_cast<unsigned char>(~byte);
    byte = static_cast<char>(carry);
    carry >>= 8;
  }
  if (magnitude.size() > 1 && magnitude.back() == '\xff' && (magnitude[magnitude.size() - 2] & 0x80))
    magnitude.pop_back();
  return magnitude;
}

double decode_float(std::string_view text) { return parse<double>(text); }

}  // namespace megatron::pickle
