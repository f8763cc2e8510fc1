// Ids of words that fit in two machine words.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "megatron/tokenizers/id_buffer.h"

namespace megatron {

/// A bounded hash table from words of 1 to kMaxWordBytes bytes to their ids. A slot is half a line of the cache and
/// holds the word and its ids if they are few, so that a lookup is one access to memory. When it is full it forgets
/// everything and starts again.
class ShortWordTable {
 public:
  static constexpr size_t kMaxWordBytes = 15;

  /// Appends the ids of a word to `ids`; false if it is not there.
  /// @param readable  bytes that may be read from the start of the word on, at least its size; 16 and more are fastest.
  bool append(std::string_view word, size_t readable, IdBuffer& ids) const {
    const Key key = key_of(word, readable);
    for (size_t i = first_slot(key);; i = (i + 1) & (slots_.size() - 1)) {
      const Slot& slot = slots_[i];
      if (slot.key == key) [[likely]] {
        const auto count = static_cast<size_t>(slot.ids[kInline]);
        if (count <= kInline) [[likely]]
          ids.append_few(slot.ids, count);
        else
          ids.append(std::span(more_ids_).subspan(static_cast<size_t>(slot.ids[0]), count));
        return true;
      }
      if (slot.key.high == 0) return false;
    }
  }
  /// Remembers a word that is not there yet.
  void insert(std::string_view word, std::span<const TokenId> ids);

 private:
  static constexpr size_t kMinSlots = 1024, kMaxSlots = size_t{1} << 17;  // half of them are filled at most
  static constexpr size_t kInline = IdBuffer::kFew - 1;
  /// The bytes of a word, and its length in the highest byte; high is 0 in a free slot.
  struct Key {
    uint64_t low, high;
    bool operator==(const Key&) const = default;
  };
  struct alignas(32) Slot {
    Key key{0, 0};
    std::array<TokenId, IdBuffer::kFew>
        ids{};  ///< the last one is their number; if that is larger, the first is an offset
  };

  static Key key_of(std::string_view word, size_t readable) {
    std::array<uint64_t, 2> bytes{};
    if (readable >= sizeof bytes) [[likely]] {
      std::memcpy(bytes.data(), word.data(), sizeof bytes);
    } else {
      std::memcpy(bytes.data(), word.data(), word.size());
    }
    const bool is_long = word.size() >= 8;
    const uint64_t partial = (uint64_t{1} << 8 * (word.size() % 8)) - 1;
    return {is_long ? bytes[0] : bytes[0] & partial, (is_long ? bytes[1] & partial : 0) | uint64_t{word.size()} << 56};
  }
  size_t first_slot(const Key& key) const {
    const uint64_t mixed = (key.low * 0x9E3779B97F4A7C15u ^ key.high) * 0xD6E8FEB86659FD93u;
    return (mixed >> 32 ^ mixed >> 47) & (slots_.size() - 1);
  }
  void place(const Slot& slot);
  void grow();

  std::vector<Slot> slots_ = std::vector<Slot>(kMinSlots);  // open addressing; the size is a power of two
  size_t num_words_ = 0;
  std::vector<TokenId> more_ids_;
};

}  // namespace megatron
