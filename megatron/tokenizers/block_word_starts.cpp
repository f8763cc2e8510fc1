#include "megatron/tokenizers/block_word_starts.h"

#include <bit>

namespace megatron {
namespace {
/// The bits one byte later; the last bit of the block before becomes the first.
uint64_t later(uint64_t bits, uint64_t before) { return bits << 1 | before >> 63; }

uint64_t starts_of_runs(uint64_t bits, uint64_t before) { return bits & ~later(bits, before); }
}  // namespace

std::optional<BlockWordStarts::Starts> BlockWordStarts::of(const BlockBits& block, const BlockNeighbours& neighbours) {
  const std::optional<Starts> starts =
      rules_.is_llama3 ? of_llama3(block, neighbours) : of_gpt2(block, neighbours.next.white_space << 63);
  skip(block);
  return starts;
}

void BlockWordStarts::skip(const BlockBits& block) {
  absorbed_before_ = absorbed_line_ends(block);
  before_ = block;
}

BlockWordStarts::Starts BlockWordStarts::of_gpt2(const BlockBits& block, uint64_t next_is_white_space) const {
  const uint64_t others = starts_of_runs(block.other, before_.other);
  const uint64_t runs =
      starts_of_runs(block.letter, before_.letter) | starts_of_runs(block.number, before_.number) | others;
  const uint64_t behind_space = later(block.space, before_.space);
  // White space is a word but for its last character, which is one of its own or the start of the word behind.
  const uint64_t last_white_space = block.white_space & ~(block.white_space >> 1 | next_is_white_space);
  const uint64_t white_space = starts_of_runs(block.white_space, before_.white_space) | last_white_space;
  return {white_space | (runs & ~behind_space), others & ~behind_space};
}

/// Line ends directly behind other characters are in their word.
uint64_t BlockWordStarts::absorbed_line_ends(const BlockBits& block) const {
  const uint64_t first = block.line_end & later(block.other, before_.other | absorbed_before_);
  return block.line_end & ~(block.line_end + first);  // the sum carries through the runs that start there
}

std::optional<BlockWordStarts::Starts> BlockWordStarts::of_llama3(const BlockBits& block,
                                                                  const BlockNeighbours& neighbours) const {
  const uint64_t absorbed = absorbed_line_ends(block);
  const uint64_t white_space = block.white_space & ~absorbed, blank = block.white_space & ~block.line_end;
  const uint64_t white_space_before = before_.white_space & ~absorbed_before_;
  const uint64_t blank_before = before_.white_space & ~before_.line_end;
  // The last line end of a run of white space ends a word. Blanks up to another line end are in the middle of one.
  const uint64_t line_ends_before = before_.line_end & ~absorbed_before_;
  const uint64_t indents = blank & later(block.line_end & ~absorbed, line_ends_before);
  const uint64_t ends_of_indents = (blank + indents) & ~blank;  // the sum carries through the runs of blanks
  if ((ends_of_indents & block.line_end) != 0) return std::nullopt;
  if (blank >> 63 != 0 && indents != 0) {
    const uint64_t next_blank = neighbours.next.white_space & ~neighbours.next.line_end;
    const auto end = static_cast<size_t>(std::countr_one(next_blank));
    if (end >= neighbours.next_bytes || (neighbours.next.line_end >> end & 1) != 0) return std::nullopt;
  }
  const std::optional<uint64_t> numbers = of_digits(block.number, neighbours.digits_in_front);
  if (!numbers) return std::nullopt;
  const uint64_t last_blank = blank & ~(block.white_space >> 1 | neighbours.next.white_space << 63);
  // One character that is no letter, number or line end goes to the letters behind it if a word starts there.
  const uint64_t other_before = before_.other & ~(before_.other << 1) & ~(before_.space << 1);
  const uint64_t others = starts_of_runs(block.other, before_.other) & ~later(block.space, before_.space);
  const uint64_t letters =
      starts_of_runs(block.letter, before_.letter) & ~later(blank, blank_before) & ~later(others, other_before);
  return Starts{starts_of_runs(white_space, white_space_before) | indents | last_blank | *numbers | others | letters,
                others};
}

std::optional<uint64_t> BlockWordStarts::of_digits(uint64_t number, size_t digits_in_front) const {
  if (rules_.max_digits == 1) return number;
  uint64_t starts = starts_of_runs(number, before_.number);
  if (rules_.max_digits == 0) return starts;
  if ((number & before_.number >> 63) != 0) {  // the word of the block before takes up to three digits
    if (digits_in_front == 0 || digits_in_front > 3) return std::nullopt;
    const size_t left = 3 - digits_in_front;
    if (static_cast<size_t>(std::countr_one(number)) > left) starts |= uint64_t{1} << left;
  }
  const uint64_t fourth = number & number << 1 & number << 2 & number << 3;
  for (uint64_t more = starts; fourth != 0 && more != 0;) {
    more = more << 3 & fourth;
    starts |= more;
  }
  return starts;
}

}  // namespace megatron
