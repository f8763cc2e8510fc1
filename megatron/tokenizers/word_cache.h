// Ids of the words seen so far.
#pragma once

#include <algorithm>
#include <array>
#include <span>
#include <string_view>

#include "megatron/tokenizers/long_word_table.h"
#include "megatron/tokenizers/short_word_table.h"

namespace megatron {

/// Words and their ids, in bounded memory. Text repeats its words (Zipf), so that a lookup replaces nearly all merging.
class WordCache {
 public:
  /// Appends the ids of a word, which is not empty; false if it is not known.
  bool append(std::string_view word, IdBuffer& ids) const {
    if (word.size() <= ShortWordTable::kMaxWordBytes) [[likely]]
      return short_words_.append(ShortWordTable::query_of(word), ids);
    const auto known = long_words_.find(word);
    if (known) ids.append(*known);
    return known.has_value();
  }

  /// Appends the ids of the words between neighbouring bounds of a text; calls `append_new(word)` for one that is not
  /// known, which may insert it.
  /// @param readable  bytes that may be read from the start of the text on, at least its size; a few more are faster.
  template <class F>
  void append_words(std::string_view text, std::span<const size_t> bounds, size_t readable, IdBuffer& ids,
                    F&& append_new) const {
    const size_t num_words = bounds.size() - 1;
    // The queries of some words come first, so that their places are fetched from memory at the same time.
    constexpr size_t kAtOnce = 32;
    std::array<ShortWordTable::Query, kAtOnce> queries;
    for (size_t first = 0, count; first < num_words; first += count) {
      count = std::min(kAtOnce, num_words - first);
      while (count > 1 && bounds[first + count - 1] + ShortWordTable::kReadBytes > readable) --count;
      const size_t* const begins = bounds.data() + first;
      const auto word = [&](size_t i) { return text.substr(begins[i], begins[i + 1] - begins[i]); };
      if (begins[0] + ShortWordTable::kReadBytes > readable) {
        if (!append(word(0), ids)) append_new(word(0));
        continue;
      }
      for (size_t i = 0; i < count; ++i) {
        queries[i] = ShortWordTable::query_of(text.data() + begins[i], begins[i + 1] - begins[i]);
        short_words_.prefetch(queries[i]);
      }
      for (size_t i = 0; i < count; ++i)
        if (!short_words_.append_likely(queries[i], ids) && !append(word(i), ids)) append_new(word(i));
    }
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
