#include "megatron/tokenizers/tokenizer.h"

#include "megatron/base/error.h"

namespace megatron {

std::vector<TokenId> Tokenizer::encode(std::string_view text) const {
  std::vector<TokenId> ids;
  make_encoder()->append(text, ids);
  return ids;
}

std::optional<TokenId> Tokenizer::id_of(std::string_view token) const {
  try {
    const std::vector<TokenId> ids = encode(token);
    if (ids.size() == 1 && decode(ids) == token) return ids[0];
  } catch (const DataError&) {  // characters outside of the vocabulary
  }
  return std::nullopt;
}

void Tokenizer::require_known(TokenId id) const {
  require<DataError>(id >= 0 && id < vocab_size(), "token id {} is outside of the vocabulary of {} tokens", id,
                     vocab_size());
}

}  // namespace megatron
