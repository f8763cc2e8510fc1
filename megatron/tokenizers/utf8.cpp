#include "megatron/tokenizers/utf8.h"

#include <simdjson.h>

#include <cstdint>
#include <cstring>

#include "megatron/base/error.h"

namespace megatron {
namespace {
/// A valid character at an offset, or a maximal invalid part.
struct Part {
  size_t bytes;
  bool valid;
};

/// Ranges of the second byte: Unicode 15, table 3-7.
Part part_at(std::string_view text, size_t offset) {
  const auto byte_at = [&](size_t i) -> unsigned {
    return offset + i < text.size() ? static_cast<unsigned char>(text[offset + i]) : 0u;
  };
  const unsigned first = byte_at(0);
  if (first < 0x80) return {1, true};
  if (first < 0xC2 || first > 0xF4) return {1, false};
  const size_t length = utf8_length(text[offset]);
  const unsigned low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
  const unsigned high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
  if (byte_at(1) < low || byte_at(1) > high) return {1, false};
  for (size_t i = 2; i < length; ++i)
    if ((byte_at(i) & 0xC0) != 0x80) return {i, false};
  return {length, true};
}

/// First offset from `offset` on that is not ASCII, eight bytes at a time.
size_t skip_ascii(std::string_view text, size_t offset) {
  for (; offset + 8 <= text.size(); offset += 8) {
    uint64_t bytes;
    std::memcpy(&bytes, text.data() + offset, 8);
    if (bytes & 0x8080808080808080u) break;
  }
  while (offset < text.size() && static_cast<unsigned char>(text[offset]) < 0x80) ++offset;
  return offset;
}
}  // namespace

std::optional<size_t> find_invalid_utf8(std::string_view text) {
  if (simdjson::validate_utf8(text.data(), text.size())) return std::nullopt;
  for (size_t offset = skip_ascii(text, 0); offset < text.size(); offset = skip_ascii(text, offset)) {
    const Part part = part_at(text, offset);
    if (!part.valid) return offset;
    offset += part.bytes;
  }
  return std::nullopt;
}

void require_utf8(std::string_view text) {
  const std::optional<size_t> invalid = find_invalid_utf8(text);
  if (invalid)
    throw DataError(
        fmt::format("the text is not UTF-8: byte {:#04x} at offset {}. Convert it first, for example with "
                    "iconv -f LATIN1 -t UTF-8",
                    static_cast<unsigned char>(text[*invalid]), *invalid));
}

std::string replace_invalid_utf8(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (size_t offset = 0; offset < text.size();) {
    const size_t ascii_end = skip_ascii(text, offset);
    result.append(text.substr(offset, ascii_end - offset));
    if (ascii_end == text.size()) break;
    const Part part = part_at(text, ascii_end);
    result.append(part.valid ? text.substr(ascii_end, part.bytes) : "\xEF\xBF\xBD");
    offset = ascii_end + part.bytes;
  }
  return result;
}

char32_t code_point_at(std::string_view valid, size_t offset) {
  const size_t length = utf8_length(valid[offset]);
  const auto first = static_cast<unsigned char>(valid[offset]);
  char32_t code_point = length == 1 ? first : first & (0xFFu >> (length + 1));
  for (size_t i = 1; i < length; ++i)
    code_point = code_point << 6 | (static_cast<unsigned char>(valid[offset + i]) & 0x3Fu);
  return code_point;
}

size_t start_of_last_character(std::string_view valid) {
  size_t start = valid.size() - 1;
  while ((static_cast<unsigned char>(valid[start]) & 0xC0) == 0x80) --start;
  return start;
}

size_t count_code_points(std::string_view valid) {
  size_t count = 0;
  for (const char c : valid) count += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return count;
}

size_t offset_of_code_point(std::string_view valid, size_t index) {
  size_t offset = 0;
  for (; index > 0 && offset < valid.size(); --index) offset += utf8_length(valid[offset]);
  return offset;
}

void append_utf8(char32_t code_point, std::string& text) {
  const auto put = [&](char32_t byte) { text.push_back(static_cast<char>(static_cast<unsigned char>(byte))); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xC0 | code_point >> 6);
    put(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    put(0xE0 | code_point >> 12);
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  } else {
    put(0xF0 | code_point >> 18);
    put(0x80 | (code_point >> 12 & 0x3F));
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  }
}

}  // namespace megatron
