// Ids of long words.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "megatron/tokenizers/tokenizer.h"

namespace megatron {

/// A bounded hash table from words of up to kMaxWordBytes to their ids: when it is full it forgets everything and
/// starts again. Longer words, which seldom repeat, are never in it.
class LongWordTable {
 public:
  /// The ids of a word, valid until the next `insert`; nullopt if it is not there.
  std::optional<std::span<const TokenId>> find(std::string_view word) const;
  /// Remembers a word that is not there yet. Does nothing for words longer than kMaxWordBytes.
  void insert(std::string_view word, std::span<const TokenId> ids);

  static constexpr size_t kMaxWordBytes = 255;

 private:
  static constexpr size_t kMinSlots = 1024, kMaxSlots = size_t{1} << 17;  // half of them are filled at most
  struct Slot {
    size_t hash;
    uint32_t word, first_id;  ///< offsets into bytes_ and ids_
    uint16_t word_bytes;      ///< 0: the slot is free
    uint16_t num_ids;
  };
  void grow();
  void place(const Slot& slot);

  std::vector<Slot> slots_;  // open addressing; the size is 0 or a power of two
  size_t num_words_ = 0;
  std::vector<char> bytes_;
  std::vector<TokenId> ids_;
};

}  // namespace megatron
