#include "megatron/tokenizers/special_tokens.h"

#include <algorithm>

#include "megatron/base/error.h"

namespace megatron {

void SpecialTokens::add(std::string text, TokenId id) {
  require<ConfigError>(!text.empty(), "a special token is empty");
  require<ConfigError>(std::ranges::find(entries_, text, &Entry::text) == entries_.end(),
                       "the special token '{}' is given twice", text);
  first_bytes_.add(text[0]);
  const auto shorter = std::ranges::find_if(entries_, [&](const Entry& e) { return e.text.size() < text.size(); });
  entries_.insert(shorter, {std::move(text), id});
}

}  // namespace megatron
