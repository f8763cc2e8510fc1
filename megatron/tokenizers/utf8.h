// UTF-8: where it is broken, and its code points.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace megatron {

/// Offset of the first byte that is not part of valid UTF-8 (RFC 3629), or nullopt if all of it is valid.
std::optional<size_t> find_invalid_utf8(std::string_view text);
/// @throw DataError naming the offset and the byte unless `text` is valid UTF-8.
void require_utf8(std::string_view text);

/// Copy in which each maximal invalid part is one U+FFFD (Unicode 15, section 3.9), as Rust's and Python's decoders do.
std::string replace_invalid_utf8(std::string_view text);

/// Bytes of the character that starts with `first`, which must start one.
constexpr size_t utf8_length(char first) {
  const auto byte = static_cast<unsigned char>(first);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}
/// The code point of valid UTF-8 whose first byte is at `offset`.
char32_t code_point_at(std::string_view valid, size_t offset);
/// Byte offset at which the last character of valid UTF-8, which is not empty, starts.
size_t start_of_last_character(std::string_view valid);
/// Number of code points of valid UTF-8.
size_t count_code_points(std::string_view valid);
/// Byte offset at which code point number `index` of valid UTF-8 starts; the size of the text if it has fewer.
size_t offset_of_code_point(std::string_view valid, size_t index);
/// Appends a code point below 0x110000 as UTF-8.
void append_utf8(char32_t code_point, std::string& text);

}  // namespace megatron
