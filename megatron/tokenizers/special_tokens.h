// Tokens that are recognised in the text before anything else.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "megatron/tokenizers/first_bytes.h"
#include "megatron/tokenizers/tokenizer.h"

namespace megatron {

/// Literal strings with their ids. At each place of a text the longest one that starts there is taken.
class SpecialTokens {
 public:
  /// @throw ConfigError if the text is empty or was added before.
  void add(std::string text, TokenId id);

  /// Calls `on_text(part)` and `on_special(id)` for the parts of the text, in order; no part is empty.
  template <class OnText, class OnSpecial>
  void for_each_part(std::string_view text, OnText&& on_text, OnSpecial&& on_special) const {
    size_t begin = 0;
    for (size_t offset = 0; (offset = first_bytes_.find(text, offset)) < text.size();) {
      const Entry* entry = match(text, offset);
      if (entry == nullptr) {
        ++offset;
        continue;
      }
      if (offset > begin) on_text(text.substr(begin, offset - begin));
      on_special(entry->id);
      begin = offset += entry->text.size();
    }
    if (begin < text.size()) on_text(text.substr(begin));
  }

 private:
  struct Entry {
    std::string text;
    TokenId id;
  };
  const Entry* match(std::string_view text, size_t offset) const {
    for (const Entry& entry : entries_)
      if (text.substr(offset).starts_with(entry.text)) return &entry;
    return nullptr;
  }

  std::vector<Entry> entries_;  // longest first
  FirstBytes first_bytes_;
};

}  // namespace megatron
