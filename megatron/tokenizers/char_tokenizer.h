// Characters as tokens.
#pragma once

#include <array>
#include <string_view>
#include <unordered_map>

#include "megatron/tokenizers/tokenizer.h"

namespace megatron {

/// For errors about --vocab-file of a CharTokenizer.
inline constexpr std::string_view kHowToMakeACharVocabulary =
    "The flag --make-char-vocab of preprocess_data writes the vocabulary of a text to --vocab-file.";

/// `--tokenizer-type CharTokenizer --vocab-file FILE`, a type of our own: one id per Unicode code point, in the order
/// of the vocabulary. There is no end of document. A character outside of the vocabulary is an error.
class CharTokenizer final : public Tokenizer {
 public:
  /// @param characters  one UTF-8 encoded code point each.
  /// @throw DataError if there is none, one is repeated or is not one code point.
  explicit CharTokenizer(std::vector<std::string> characters);
  /// Reads the vocabulary: a file named *.json is an array of strings, any other file is the characters themselves, one
  /// after the other, a newline being a character like any other.
  /// @throw IoError if the file cannot be read, DataError if it is damaged.
  static CharTokenizer from_file(const std::string& path);

  std::unique_ptr<TextEncoder> make_encoder() const override;
  std::string decode(std::span<const TokenId> ids) const override;
  int64_t vocab_size() const override { return static_cast<int64_t>(characters_.size()); }
  std::optional<TokenId> eod() const override { return std::nullopt; }
  /// The characters are part of it, so that another vocabulary in the same file is another tokenizer.
  TokenizerIdentity identity() const override;
  std::vector<TokenizerFile> files() const override;

  /// @throw DataError naming the character if the vocabulary has it not.
  TokenId id_of(char32_t code_point) const;

 private:
  static constexpr TokenId kAbsent = -1;
  std::vector<std::string> characters_;
  std::array<TokenId, 128> ascii_ids_;
  std::unordered_map<char32_t, TokenId> ids_;
};

/// The distinct characters of valid UTF-8 in the order of their code points: nanoGPT's character vocabulary.
std::vector<std::string> distinct_characters(std::string_view valid);

}  // namespace megatron
