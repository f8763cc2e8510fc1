// Bitmaps of a text: which bytes belong to letters, numbers, white space and other characters.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace megatron {

/// Sets of characters. Every character is in exactly one of the first four; the others are further sets.
enum class CharacterSet : uint8_t {
  kLetter,      ///< \p{L}
  kNumber,      ///< \p{N}
  kWhiteSpace,  ///< \s
  kOther,
  kUpper,    ///< [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]
  kLower,    ///< [\p{Ll}\p{Lm}\p{Lo}\p{M}]
  kSpace,    ///< U+0020
  kLineEnd,  ///< [\r\n]
};
constexpr size_t kNumCharacterSets = 8;

/// The sets of every code point. Immutable; threads may share it.
class CharacterSets {
 public:
  /// Those of Unicode 16, made at the first call: that takes as long as compiling many patterns.
  static const CharacterSets& unicode_16();
  /// A bit for each CharacterSet.
  uint8_t of(char32_t code_point) const {
    return pages_[page_of_[code_point >> kPageBits]][code_point & ((1u << kPageBits) - 1)];
  }

 private:
  CharacterSets();
  static constexpr unsigned kPageBits = 8;
  using Page = std::array<uint8_t, size_t{1} << kPageBits>;
  std::vector<uint8_t> page_of_;
  std::vector<Page> pages_;  // equal ones once
};

/// A bit for each byte of a text and each set: whether the character that the byte belongs to is in the set.
/// One thread uses it at a time; its memory, a byte for each byte of text, is kept for the next text.
class CharacterMasks {
 public:
  /// @param valid  valid UTF-8.
  void fill(std::string_view valid, const CharacterSets& sets);

  static constexpr size_t kBytes = 64;
  /// The bits of 64 bytes, by set; as large as a line of the cache.
  using Block = std::array<uint64_t, kNumCharacterSets>;
  /// The bits of the bytes from kBytes * i on; those behind the text are 0. There is a block behind the last byte.
  const Block& block(size_t i) const { return blocks_[i]; }
  static bool is_ascii(const char* block);
  /// Which bytes of a block are `c`.
  static uint64_t bits_equal(const char* block, char c);

  /// Says whether the byte at `offset`, which may be the size of the text, belongs to a character of the set.
  bool contains(CharacterSet set, size_t offset) const { return bits_of(set, offset / kBytes) >> offset % kBytes & 1; }
  /// First byte at or after `begin` that belongs to no character of the set, or the size of the text.
  size_t end_of_run(CharacterSet set, size_t begin) const {
    size_t block = begin / kBytes;
    uint64_t outside = ~bits_of(set, block) >> begin % kBytes;
    if (outside != 0) return begin + static_cast<size_t>(std::countr_zero(outside));
    do outside = ~bits_of(set, ++block);
    while (outside == 0);
    return kBytes * block + static_cast<size_t>(std::countr_zero(outside));
  }

 private:
  uint64_t bits_of(CharacterSet set, size_t block) const { return blocks_[block][static_cast<size_t>(set)]; }
  size_t fill_characters(std::string_view valid, size_t begin, size_t end, const CharacterSets& sets);

  std::vector<Block> blocks_;  // the last one is 0, so that every run ends
};

}  // namespace megatron
