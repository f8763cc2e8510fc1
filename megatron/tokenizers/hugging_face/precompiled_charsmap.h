// SentencePiece's normalization rules as Hugging Face stores them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace megatron::hugging_face {

/// A double-array trie (Darts-clone) from character sequences to replacements. Immutable.
/// Source: the crate spm_precompiled 0.1, which cuts the text into grapheme clusters first, unlike SentencePiece.
class PrecompiledCharsmap {
 public:
  /// The base64 of a 32-bit size, the trie and the replacements, each ended by a zero byte; empty: no rules.
  /// @throw DataError naming `where` if it is damaged.
  static PrecompiledCharsmap from_base64(std::string_view base64, std::string_view where);

  /// The same without base64.
  static PrecompiledCharsmap from_bytes(std::string bytes, std::string_view where);

  std::string normalized(std::string_view valid) const;

  /// The length and the replacement of the longest sequence with a rule that `text` starts with, as SentencePiece
  /// itself applies them.
  std::optional<std::pair<size_t, std::string_view>> longest_rule(std::string_view text) const;
  /// Says whether a rule for the first byte, or for a sequence that starts with both bytes, may exist.
  bool may_start(std::string_view two_bytes) const;

 private:
  /// The replacement for the shortest prefix of `text` that has one.
  std::optional<std::string_view> replacement(std::string_view text) const;
  std::string_view replacement_at(size_t leaf) const;
  uint32_t unit(size_t position) const { return position < trie_.size() ? trie_[position] : 0; }

  std::vector<uint32_t> trie_;
  std::string replacements_;
};

}  // namespace megatron::hugging_face
