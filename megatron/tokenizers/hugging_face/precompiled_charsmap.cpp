#include "megatron/tokenizers/hugging_face/precompiled_charsmap.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/tokenizers/base64.h"
#include "megatron/tokenizers/unicode.h"
#include "megatron/tokenizers/utf8.h"

namespace megatron::hugging_face {
namespace {
static_assert(std::endian::native == std::endian::little, "the file's integers are little-endian");

// Fields of a unit of the double array.
constexpr size_t offset_of(uint32_t unit) { return static_cast<size_t>(unit >> 10) << ((unit & (1u << 9)) >> 6); }
constexpr uint32_t label_of(uint32_t unit) { return unit & (1u << 31 | 0xFFu); }
constexpr bool has_leaf(uint32_t unit) { return (unit >> 8 & 1) != 0; }
constexpr uint32_t value_of(uint32_t unit) { return unit & ((1u << 31) - 1); }

constexpr size_t kMaxGraphemeBytes = 5;  // longer ones are looked up character by character
}  // namespace

PrecompiledCharsmap PrecompiledCharsmap::from_base64(std::string_view base64, std::string_view where) {
  std::optional<std::string> bytes = base64_decoded(base64);
  require<DataError>(bytes.has_value(), "{}: precompiled_charsmap is not base64", where);
  return from_bytes(std::move(*bytes), where);
}

PrecompiledCharsmap PrecompiledCharsmap::from_bytes(std::string bytes, std::string_view where) {
  PrecompiledCharsmap result;
  if (bytes.empty()) return result;
  uint32_t trie_bytes = 0;
  if (bytes.size() >= sizeof(trie_bytes)) std::memcpy(&trie_bytes, bytes.data(), sizeof(trie_bytes));
  require<DataError>(
      bytes.size() >= sizeof(trie_bytes) + trie_bytes && trie_bytes > 0 && trie_bytes % sizeof(uint32_t) == 0,
      "{}: precompiled_charsmap is damaged: it is not a trie and its replacements", where);
  result.trie_.resize(trie_bytes / sizeof(uint32_t));
  std::memcpy(result.trie_.data(), bytes.data() + sizeof(trie_bytes), trie_bytes);
  result.replacements_ = bytes.substr(sizeof(trie_bytes) + trie_bytes);
  require<DataError>(!find_invalid_utf8(result.replacements_),
                     "{}: precompiled_charsmap is damaged: its replacements are not UTF-8", where);
  return result;
}

/// Up to the zero byte.
std::string_view PrecompiledCharsmap::replacement_at(size_t leaf) const {
  return replacements_.c_str() + std::min<size_t>(value_of(unit(leaf)), replacements_.size());
}

std::optional<std::pair<size_t, std::string_view>> PrecompiledCharsmap::longest_rule(std::string_view text) const {
  std::optional<std::pair<size_t, std::string_view>> longest;
  size_t position = offset_of(unit(0));
  for (size_t i = 0; i < text.size() && !trie_.empty(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    position ^= byte;
    const uint32_t node = unit(position);
    if (label_of(node) != byte) break;
    position ^= offset_of(node);
    if (has_leaf(node)) longest = {i + 1, replacement_at(position)};
  }
  return longest;
}

bool PrecompiledCharsmap::may_start(std::string_view two_bytes) const {
  size_t position = offset_of(unit(0));
  for (const char c : two_bytes) {
    const auto byte = static_cast<unsigned char>(c);
    position ^= byte;
    const uint32_t node = unit(position);
    if (trie_.empty() || label_of(node) != byte) return false;
    if (has_leaf(node)) return true;
    position ^= offset_of(node);
  }
  return true;
}

std::optional<std::string_view> PrecompiledCharsmap::replacement(std::string_view text) const {
  size_t position = offset_of(unit(0));
  for (const char c : text) {
    if (c == 0) return std::nullopt;
    const auto byte = static_cast<unsigned char>(c);
    position ^= byte;
    const uint32_t node = unit(position);
    if (label_of(node) != byte) return std::nullopt;
    position ^= offset_of(node);
    if (!has_leaf(node)) continue;
    const size_t begin = value_of(unit(position));
    if (begin >= replacements_.size()) return std::nullopt;
    return std::string_view(replacements_.c_str() + begin);  // up to the zero byte
  }
  return std::nullopt;
}

std::string PrecompiledCharsmap::normalized(std::string_view valid) const {
  if (trie_.empty()) return std::string(valid);
  std::string result;
  result.reserve(valid.size());
  for (size_t offset = 0, length; offset < valid.size(); offset += length) {
    length = grapheme_length(valid, offset);
    const std::string_view grapheme = valid.substr(offset, length);
    if (length <= kMaxGraphemeBytes) {
      if (const auto whole = replacement(grapheme)) {
        result += *whole;
        continue;
      }
    }
    for (size_t i = 0, bytes; i < length; i += bytes) {
      bytes = utf8_length(grapheme[i]);
      const std::string_view character = grapheme.substr(i, bytes);
      result += replacement(character).value_or(character);
    }
  }
  return result;
}

}  // namespace megatron::hugging_face
