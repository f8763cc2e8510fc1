// OpenAI's tiktoken: byte-pair encoding by the ranks of whole tokens.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "megatron/tokenizers/regex_splitter.h"
#include "megatron/tokenizers/special_tokens.h"
#include "megatron/tokenizers/tokenizer.h"

namespace megatron {

/// A pattern cuts the text into pieces; a piece that is a token is its id; else its bytes are joined: of all neighbours
/// those whose concatenation has the lowest rank, the leftmost of equals. Ids are those of tiktoken 0.14 with all
/// special tokens allowed. Immutable; threads may share it.
class TiktokenEncoding {
 public:
  struct Options {
    std::string pattern;              ///< Perl syntax
    std::vector<std::string> tokens;  ///< bytes, by rank; each byte is one
    TokenId first_id = 0;             ///< of rank 0
    std::vector<std::pair<std::string, TokenId>> special_tokens = {};
  };
  /// @throw ConfigError if a special token is given twice or the pattern is wrong.
  explicit TiktokenEncoding(const Options& options);

  std::unique_ptr<TextEncoder> make_encoder() const;
  /// The bytes of an id; nullptr if no token has it.
  const std::string* bytes_of(TokenId id) const;
  /// The rank of a token, or nullptr.
  const TokenId* rank_of(std::string_view bytes) const;

 private:
  friend class TiktokenEncoder;
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };
  RegexPattern pattern_;
  SpecialTokens special_tokens_;
  TokenId first_id_;
  std::unordered_map<std::string, TokenId, Hash, std::equal_to<>> ranks_;
  std::unordered_map<TokenId, std::string> bytes_;
};

}  // namespace megatron
