// SentencePiece's normalization rules as Hugging Face stores them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace megatron::hugging_face {

/// A double-array trie (Darts-clone) from character sequences to replacements. Immutable.
/// Source: the crate spm_precompiled 0.1, which cuts the text into grapheme clusters first, unlike SentencePiece.
class PrecompiledCharsmap {
 public:
  /// The base64 of a 32-bit size, the trie and the replacements, each ended by a zero byte; empty: no rules.
  /// @throw DataError naming `where` if it is damaged.
  static PrecompiledCharsmap from_base64(std::string_view base64, std::string_view where);

  std::string normalized(std::string_view valid) const;

 private:
  /// The replacement for the shortest prefix of `text` that has one.
  std::optional<std::string_view> replacement(std::string_view text) const;
  uint32_t unit(size_t position) const { return position < trie_.size() ? trie_[position] : 0; }

  std::vector<uint32_t> trie_;
  std::string replacements_;
};

}  // namespace megatron::hugging_face
