// The entries of a model, both ways.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "megatron/tokenizers/tokenizer.h"

namespace megatron::hugging_face {

/// Tokens and their ids, which may leave gaps. Immutable once filled; threads may share it.
class Vocabulary {
 public:
  /// @throw DataError naming `where` if the token is there with another id or the id with another token.
  void add(std::string_view token, TokenId id, std::string_view where);
  std::optional<TokenId> id_of(std::string_view token) const;
  /// nullptr for an id that has no token.
  const std::string* token_of(TokenId id) const;
  size_t num_tokens() const { return ids_.size(); }
  /// One more than the largest id.
  TokenId end_of_ids() const { return static_cast<TokenId>(tokens_.size()); }

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };
  std::unordered_map<std::string, TokenId, Hash, std::equal_to<>> ids_;
  std::vector<std::optional<std::string>> tokens_;
};

}  // namespace megatron::hugging_face
