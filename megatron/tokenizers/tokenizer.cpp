#include "megatron/tokenizers/tokenizer.h"

#include "megatron/base/error.h"

namespace megatron {

std::vector<TokenId> Tokenizer::encode(std::string_view text) const {
  std::vector<TokenId> ids;
  make_encoder()->append(text, ids);
  return ids;
}

void Tokenizer::require_known(TokenId id) const {
  require<DataError>(id >= 0 && id < vocab_size(), "token id {} is outside of the vocabulary of {} tokens", id,
                     vocab_size());
}

}  // namespace megatron
