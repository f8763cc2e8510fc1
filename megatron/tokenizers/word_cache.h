// Ids of the words seen so far.
#pragma once

#include <span>
#include <string_view>

#include "megatron/tokenizers/long_word_table.h"
#include "megatron/tokenizers/short_word_table.h"

namespace megatron {

/// Words and their ids, in bounded memory. Text repeats its words (Zipf), so that a lookup replaces nearly all merging.
class WordCache {
 public:
  /// Appends the ids of a word, which is not empty; false if it is not known.
  /// @param readable  bytes that may be read from the start of the word on, at least its size.
  bool append(std::string_view word, size_t readable, IdBuffer& ids) const {
    if (word.size() <= ShortWordTable::kMaxWordBytes) [[likely]]
      return short_words_.append(word, readable, ids);
    const auto known = long_words_.find(word);
    if (known) ids.append(*known);
    return known.has_value();
  }
  /// Remembers a word that is not known yet.
  void insert(std::string_view word, std::span<const TokenId> ids) {
    if (word.size() <= ShortWordTable::kMaxWordBytes)
      short_words_.insert(word, ids);
    else
      long_words_.insert(word, ids);
  }

 private:
  ShortWordTable short_words_;
  LongWordTable long_words_;
};

}  // namespace megatron
