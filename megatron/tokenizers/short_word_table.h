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

/// A bounded hash table from words of 1 to kMaxWordBytes bytes to their ids. A line of the cache holds two words and
/// their ids if they are few, so that a lookup is one access to memory. When it is full it forgets everything and
/// starts again.
class ShortWordTable {
 public:
  static constexpr size_t kMaxWordBytes = 15;
  /// Bytes that are read from the start of a word on where `readable` allows it.
  static constexpr size_t kReadBytes = 16;

  /// The key of a word.
  struct Query {
    uint64_t low, high;  ///< the bytes of the word, and its length in the highest byte; high is 0 in a free slot
    uint64_t hash;
  };

  /// The query of a word of any size from the start of which kReadBytes may be read. A word that is too long is in no
  /// table.
  static Query query_of(const char* word, size_t size) {
    std::array<uint64_t, 2> bytes;
    std::memcpy(bytes.data(), word, sizeof bytes);
    const std::array<uint64_t, 2>& mask = kMasks[size < kTooLong ? size : kTooLong];
    return with_hash(bytes[0] & mask[0], (bytes[1] & mask[1]) | uint64_t{size < kTooLong ? size : kTooLong} << 56);
  }
  /// The query of a word of 1 to kMaxWordBytes bytes.
  static Query query_of(std::string_view word) {
    std::array<char, kReadBytes> bytes{};
    std::memcpy(bytes.data(), word.data(), word.size());
    return query_of(bytes.data(), word.size());
  }
  /// Brings the place of a word into the cache.
  void prefetch(const Query& query) const { __builtin_prefetch(&lines_[query.hash & (lines_.size() - 1)]); }

  /// Appends the ids of a word to `ids` if it is where it was sought first and has few; else false, which says nothing.
  bool append_likely(const Query& query, IdBuffer& ids) const {
    const Line& line = lines_[query.hash & (lines_.size() - 1)];
    const Slot& slot = line[is_equal(line[1], query) ? 1 : 0];
    const auto count = static_cast<size_t>(slot.ids[kInline]);
    if (!is_equal(slot, query) || count > kInline) [[unlikely]]
      return false;
    ids.append_few(slot.ids, count);
    return true;
  }
  /// Appends the ids of a word to `ids`; false if it is not there.
  bool append(const Query& query, IdBuffer& ids) const;
  /// Remembers a word of 1 to kMaxWordBytes bytes that is not there yet.
  void insert(std::string_view word, std::span<const TokenId> ids);

 private:
  static constexpr size_t kMinLines = 512, kMaxLines = size_t{1} << 16;  // half of the slots are filled at most
  static constexpr size_t kInline = IdBuffer::kFew - 1, kTooLong = kMaxWordBytes + 1;
  struct Slot {
    uint64_t low = 0, high = 0;
    std::array<TokenId, IdBuffer::kFew>
        ids{};  ///< the last one is their number; if that is larger, the first is an offset
  };
  struct alignas(64) Line : std::array<Slot, 2> {};

  /// Ones for the bytes of a word, by its size.
  static constexpr std::array<std::array<uint64_t, 2>, kTooLong + 1> kMasks = [] {
    std::array<std::array<uint64_t, 2>, kTooLong + 1> masks{};
    for (size_t size = 0; size <= kMaxWordBytes; ++size)
      for (size_t i = 0; i < size; ++i) masks[size][i / 8] |= uint64_t{0xFF} << 8 * (i % 8);
    return masks;
  }();

  static bool is_equal(const Slot& slot, const Query& query) {
    return ((slot.low ^ query.low) | (slot.high ^ query.high)) == 0;
  }
  static Query with_hash(uint64_t low, uint64_t high) {
    const uint64_t mixed = (low * 0x9E3779B97F4A7C15u ^ high) * 0xD6E8FEB86659FD93u;
    return {low, high, mixed >> 32 ^ mixed >> 47};
  }
  void place(const Slot& slot);
  void grow();

  std::vector<Line> lines_ = std::vector<Line>(kMinLines);  // open addressing; the size is a power of two
  size_t num_words_ = 0;
  std::vector<TokenId> more_ids_;
};

}  // namespace megatron
