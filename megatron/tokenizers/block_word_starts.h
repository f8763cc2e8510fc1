// Finds the starts of words in 64 bytes of text, all of them at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace megatron {

/// Bits of 64 bytes of text: which kind of character a byte belongs to. Each byte has one of the first four.
struct BlockBits {
  uint64_t letter = 0, number = 0, white_space = 0, other = 0;
  uint64_t space = 0, line_end = 0;  ///< U+0020; U+000A and U+000D
};

/// The facts on which the words of a block depend besides the block itself.
struct BlockNeighbours {
  /// The block behind it; the text goes on behind the block.
  const BlockBits& next;
  size_t next_bytes;  ///< bytes of that block, at most 64
  /// Bytes from the last start of a word to the block, if all of them are one run of ASCII digits; else 0.
  size_t digits_in_front;
};

/// Finds the starts of words by arithmetic on bits, where a loop over words would mispredict a branch for nearly each
/// of them. Blocks are given in order: each needs the bits of the one before.
///
/// The rules are those of WordScanner for ASCII. Only contractions are left to the caller, who finds their apostrophes
/// among `others`.
class BlockWordStarts {
 public:
  struct Rules {
    bool is_llama3;     ///< else GPT-2's
    size_t max_digits;  ///< 0, 1 or 3
  };
  struct Starts {
    uint64_t bits;    ///< of all words
    uint64_t others;  ///< of those that start with a character of BlockBits::other
  };
  explicit BlockWordStarts(const Rules& rules) : rules_(rules) {}

  /// A text begins.
  void reset() { before_ = {}, absorbed_before_ = 0; }
  /// The starts in a block of ASCII behind which the text goes on; nullopt if more than the next block decides.
  std::optional<Starts> of(const BlockBits& block, const BlockNeighbours& neighbours);
  /// Goes on behind a block whose starts the caller finds otherwise.
  void skip(const BlockBits& block);

 private:
  Starts of_gpt2(const BlockBits& block, uint64_t next_is_white_space) const;
  std::optional<Starts> of_llama3(const BlockBits& block, const BlockNeighbours& neighbours) const;
  std::optional<uint64_t> of_digits(uint64_t number, size_t digits_in_front) const;
  uint64_t absorbed_line_ends(const BlockBits& block) const;

  Rules rules_;
  BlockBits before_;
  uint64_t absorbed_before_ = 0;  // line ends of the block before that belong to other characters
};

}  // namespace megatron
