// Added tokens of a tokenizer.json: found in the text before the model sees it.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "megatron/tokenizers/first_bytes.h"
#include "megatron/tokenizers/hugging_face/normalizers.h"
#include "megatron/tokenizers/hugging_face/vocabulary.h"
#include "megatron/tokenizers/regex_splitter.h"

namespace megatron::hugging_face {

struct AddedToken {
  TokenId id;
  std::string content;
  bool single_word = false;  ///< only where no neighbour is a character of a word
  bool lstrip = false;       ///< with the white space in front of it
  bool rstrip = false;       ///< with the white space behind it
  bool normalized = true;    ///< sought in the normalized text, in its own normal form
  bool special = false;      ///< left out by a decoding that skips special tokens
};

/// Reads the list `added_tokens`. @throw DataError or NotSupported as JsonFields.
std::vector<AddedToken> read_added_tokens(const std::vector<simdjson::dom::element>& list, const std::string& where);

/// Tokens that are sought together. At each place the longest one that starts there is taken. Immutable.
class AddedTokenMatcher {
 public:
  AddedTokenMatcher();
  /// @param pattern  the text to find.
  void add(std::string_view pattern, const AddedToken& token);

  /// Calls `on_text(begin, end)` and `on_token(id)` for the parts of a text, in order; no part is empty.
  template <class OnText, class OnToken>
  void for_each_part(std::string_view valid, OnText&& on_text, OnToken&& on_token) const {
    size_t begin = 0;
    for (size_t offset = 0; (offset = first_bytes_.find(valid, offset)) < valid.size();) {
      const Entry* entry = match(valid, offset);
      if (entry == nullptr) {
        ++offset;
        continue;
      }
      Range range{offset, offset + entry->pattern.size()};
      offset = range.end;
      if (!accept(valid, begin, *entry, range)) continue;
      if (range.begin > begin) on_text(begin, range.begin);
      on_token(entry->id);
      begin = range.end;
    }
    if (begin < valid.size()) on_text(begin, valid.size());
  }

 private:
  struct Entry {
    std::string pattern;
    TokenId id;
    bool single_word, lstrip, rstrip;
  };
  struct Range {
    size_t begin, end;
  };
  const Entry* match(std::string_view valid, size_t offset) const;
  /// Says whether the token counts there; widens its range by white space. @param free  where the token before ends.
  bool accept(std::string_view valid, size_t free, const Entry& entry, Range& range) const;
  bool is_word_character(std::string_view character) const;

  std::array<std::vector<Entry>, 256> entries_;  // by first byte, longest first
  FirstBytes first_bytes_;
  RegexPattern word_character_;
};

}  // namespace megatron::hugging_face
