#include "megatron/tokenizers/hugging_face/vocabulary.h"

#include "megatron/base/error.h"

namespace megatron::hugging_face {
namespace {
constexpr TokenId kMaxId = 1 << 24;  // far above any vocabulary: a table of that many entries is still small
}

void Vocabulary::add(std::string_view token, TokenId id, std::string_view where) {
  require<DataError>(id <= kMaxId, "{}: the id {} of '{}' is above {}", where, id, token, kMaxId);
  const auto index = static_cast<size_t>(id);
  if (index >= tokens_.size()) tokens_.resize(index + 1);
  require<DataError>(!tokens_[index] || *tokens_[index] == token, "{}: '{}' and '{}' both have the id {}", where,
                     tokens_[index].value_or(""), token, id);
  const auto [place, is_added] = ids_.emplace(token, id);
  require<DataError>(place->second == id, "{}: '{}' has the ids {} and {}", where, token, place->second, id);
  tokens_[index] = token;
}

std::optional<TokenId> Vocabulary::id_of(std::string_view token) const {
  const auto place = ids_.find(token);
  return place == ids_.end() ? std::nullopt : std::optional(place->second);
}

const std::string* Vocabulary::token_of(TokenId id) const {
  if (id < 0 || id >= end_of_ids() || !tokens_[static_cast<size_t>(id)]) return nullptr;
  return &*tokens_[static_cast<size_t>(id)];
}

}  // namespace megatron::hugging_face
