#include "megatron/tokenizers/character_masks.h"

#include <algorithm>

#include "megatron/tokenizers/unicode.h"
#include "megatron/tokenizers/unicode_categories.h"
#include "megatron/tokenizers/utf8.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace megatron {
namespace {
constexpr size_t kBlock = CharacterMasks::kBytes;

constexpr unsigned bit(CharacterSet set) { return 1u << static_cast<unsigned>(set); }

unsigned sets_of(char32_t code_point) {
  const std::string_view category = general_category(code_point);
  const bool is_letter = category[0] == 'L', is_mark = category[0] == 'M';
  const bool is_caseless = is_mark || category == "Lm" || category == "Lo";
  unsigned sets = is_letter                    ? bit(CharacterSet::kLetter)
                  : category[0] == 'N'         ? bit(CharacterSet::kNumber)
                  : is_white_space(code_point) ? bit(CharacterSet::kWhiteSpace)
                                               : bit(CharacterSet::kOther);
  if (is_caseless || category == "Lu" || category == "Lt") sets |= bit(CharacterSet::kUpper);
  if (is_caseless || category == "Ll") sets |= bit(CharacterSet::kLower);
  if (code_point == ' ') sets |= bit(CharacterSet::kSpace);
  if (code_point == '\r' || code_point == '\n') sets |= bit(CharacterSet::kLineEnd);
  return sets;
}

/// Bits of 64 ASCII characters.
struct AsciiBits {
  uint64_t upper, lower, number, white_space, space, line_end;
};

#ifdef __SSE2__
AsciiBits ascii_bits(const char* block) {
  AsciiBits bits{};
  for (unsigned part = 0; part < 4; ++part) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(block + 16 * part));
    const auto between = [bytes](char first, char last) {
      const __m128i above = _mm_cmpgt_epi8(bytes, _mm_set1_epi8(static_cast<char>(first - 1)));
      const __m128i below = _mm_cmplt_epi8(bytes, _mm_set1_epi8(static_cast<char>(last + 1)));
      return _mm_and_si128(above, below);
    };
    const auto put = [part](__m128i found, uint64_t& word) {
      word |= uint64_t{static_cast<unsigned>(_mm_movemask_epi8(found))} << 16 * part;
    };
    put(between('A', 'Z'), bits.upper);
    put(between('a', 'z'), bits.lower);
    put(between('0', '9'), bits.number);
    const __m128i space = _mm_cmpeq_epi8(bytes, _mm_set1_epi8(' '));
    put(_mm_or_si128(between('\t', '\r'), space), bits.white_space);
    put(space, bits.space);
    put(_mm_or_si128(_mm_cmpeq_epi8(bytes, _mm_set1_epi8('\r')), _mm_cmpeq_epi8(bytes, _mm_set1_epi8('\n'))),
        bits.line_end);
  }
  return bits;
}
#else
AsciiBits ascii_bits(const char* block) {
  AsciiBits bits{};
  for (unsigned i = 0; i < kBlock; ++i) {
    const char c = block[i];
    const auto put = [i](bool found, uint64_t& word) { word |= uint64_t{found} << i; };
    put(c >= 'A' && c <= 'Z', bits.upper);
    put(c >= 'a' && c <= 'z', bits.lower);
    put(c >= '0' && c <= '9', bits.number);
    put((c >= '\t' && c <= '\r') || c == ' ', bits.white_space);
    put(c == ' ', bits.space);
    put(c == '\r' || c == '\n', bits.line_end);
  }
  return bits;
}
#endif

/// The bits of 64 ASCII characters, by CharacterSet.
template <class Block>
Block ascii_block(const char* text) {
  const AsciiBits bits = ascii_bits(text);
  const uint64_t letter = bits.upper | bits.lower;
  return {letter,     bits.number, bits.white_space, ~(letter | bits.number | bits.white_space),
          bits.upper, bits.lower,  bits.space,       bits.line_end};
}
}  // namespace

const CharacterSets& CharacterSets::unicode_16() {
  static const CharacterSets kSets;
  return kSets;
}

CharacterSets::CharacterSets() {
  for (char32_t first = 0; first < 0x110000; first += 1u << kPageBits) {
    Page page;
    for (char32_t i = 0; i < page.size(); ++i) page[i] = static_cast<uint8_t>(sets_of(first + i));
    auto known = std::ranges::find(pages_, page);
    if (known == pages_.end()) known = pages_.insert(pages_.end(), page);
    page_of_.push_back(static_cast<uint8_t>(known - pages_.begin()));
  }
}

#ifdef __SSE2__
bool CharacterMasks::is_ascii(const char* block) {
  const auto load = [block](unsigned part) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(block + 16 * part));
  };
  return _mm_movemask_epi8(_mm_or_si128(_mm_or_si128(load(0), load(1)), _mm_or_si128(load(2), load(3)))) == 0;
}

uint64_t CharacterMasks::bits_equal(const char* block, char c) {
  uint64_t bits = 0;
  for (unsigned part = 0; part < 4; ++part) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(block + 16 * part));
    const int found = _mm_movemask_epi8(_mm_cmpeq_epi8(bytes, _mm_set1_epi8(c)));
    bits |= uint64_t{static_cast<unsigned>(found)} << 16 * part;
  }
  return bits;
}
#else
bool CharacterMasks::is_ascii(const char* block) {
  return std::all_of(block, block + kBytes, [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

uint64_t CharacterMasks::bits_equal(const char* block, char c) {
  uint64_t bits = 0;
  for (unsigned i = 0; i < kBytes; ++i) bits |= uint64_t{block[i] == c} << i;
  return bits;
}
#endif

void CharacterMasks::fill(std::string_view valid, const CharacterSets& sets) {
  const size_t num_blocks = valid.size() / kBytes + 2;
  blocks_.resize(std::max(blocks_.size(), num_blocks));
  std::fill_n(blocks_.begin(), num_blocks, Block{});
  size_t done = 0;
  for (size_t begin = 0; begin < valid.size(); begin += kBytes) {
    if (begin + kBytes <= valid.size() && is_ascii(valid.data() + begin))
      blocks_[begin / kBytes] = ascii_block<Block>(valid.data() + begin);
    else
      done = fill_characters(valid, std::max(done, begin), std::min(begin + kBytes, valid.size()), sets);
  }
}

/// Characters that start in [begin, end), which is within a block. @return where the last of them ends.
size_t CharacterMasks::fill_characters(std::string_view valid, size_t begin, size_t end, const CharacterSets& sets) {
  Block& block = blocks_[begin / kBytes];
  while (begin < end) {
    const size_t length = utf8_length(valid[begin]), place = begin % kBytes;
    const unsigned found = sets.of(code_point_at(valid, begin));
    const uint64_t bytes = (uint64_t{1} << length) - 1;
    for (size_t set = 0; set < kNumCharacterSets; ++set) block[set] |= (bytes << place) & -uint64_t{found >> set & 1};
    if (place + length > kBytes)
      for (size_t set = 0; set < kNumCharacterSets; ++set)
        blocks_[begin / kBytes + 1][set] |= (bytes >> (kBytes - place)) & -uint64_t{found >> set & 1};
    begin += length;
  }
  return begin;
}

}  // namespace megatron
