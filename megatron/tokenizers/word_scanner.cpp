#include "megatron/tokenizers/word_scanner.h"

#include <algorithm>
#include <array>
#include <bit>
#include <string>
#include <utility>

#include "megatron/tokenizers/utf8.h"

namespace megatron {
namespace {
using enum CharacterSet;
constexpr size_t kBytes = CharacterMasks::kBytes;

constexpr std::string_view kTail = R"(\s+(?!\S)|\s+)";
constexpr std::string_view kContractions = "(?i:'s|'t|'re|'ve|'m|'ll|'d)";

std::string llama3_pattern(std::string_view digits) {
  return std::string(kContractions) + R"(|[^\r\n\p{L}\p{N}]?\p{L}+|)" + std::string(digits) +
         R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|)" + std::string(kTail);
}

std::string o200k_pattern(std::string_view contractions, std::string_view digits) {
  const std::string prefix = R"([^\r\n\p{L}\p{N}]?)", upper = R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])",
                    lower = R"([\p{Ll}\p{Lm}\p{Lo}\p{M}])";
  return prefix + upper + "*" + lower + "+" + std::string(contractions) + "|" + prefix + upper + "+" + lower + "*" +
         std::string(contractions) + "|" + std::string(digits) + R"(| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|)" +
         std::string(kTail);
}

bool is_line_end(char c) { return c == '\r' || c == '\n'; }

/// Bytes of a contraction that a text starts with; 0 if there is none. Ignoring case, U+017F is an s as well.
size_t contraction_length(std::string_view text, bool ignores_case) {
  if (!text.starts_with('\'')) return 0;
  if (ignores_case && text.substr(1).starts_with("\u017F")) return 3;
  const auto letter = [&](size_t i) {
    const char c = i < text.size() ? text[i] : '\0';
    return ignores_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c;
  };
  const char first = letter(1), second = letter(2);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return 2;
  const bool is_long = ((first == 'r' || first == 'v') && second == 'e') || (first == 'l' && second == 'l');
  return is_long ? 3 : 0;
}
}  // namespace

std::optional<WordRules> WordRules::of(std::string_view pattern) {
  using enum Family;
  const std::string three = R"(\p{N}{1,3})", one = R"(\p{N})";
  const std::array<std::pair<std::string, WordRules>, 8> known = {{
      {R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)", {.family = kGpt2}},
      {R"('(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s)", {.family = kGpt2}},
      {llama3_pattern(three), {.family = kLlama3, .max_digits = 3}},
      {llama3_pattern(one), {.family = kLlama3, .max_digits = 1}},
      {R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|)"
       R"(\s+(?!\S)|\s)",
       {.family = kLlama3, .max_digits = 3, .keeps_final_space = true}},
      {R"([^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)",
       {.family = kLlama3, .max_digits = 1, .has_contractions = false}},
      {o200k_pattern(std::string(kContractions) + "?", three),
       {.family = kO200k, .max_digits = 3, .keeps_slashes = true}},
      {o200k_pattern("", one), {.family = kO200k, .max_digits = 1, .has_contractions = false, .keeps_slashes = true}},
  }};
  const auto place = std::ranges::find(known, pattern, &std::pair<std::string, WordRules>::first);
  return place == known.end() ? std::nullopt : std::optional(place->second);
}

size_t WordScanner::independent_part(std::string_view valid) {
  // A letter or digit ends a word if ASCII white space follows, whatever is behind that.
  const auto ends_word = [&](size_t i) {
    const char last = valid[i - 1], next = valid[i];
    const bool is_alphanumeric =
        (last >= 'a' && last <= 'z') || (last >= 'A' && last <= 'Z') || (last >= '0' && last <= '9');
    return is_alphanumeric && (next == ' ' || next == '\n' || next == '\t');
  };
  constexpr size_t kPartBytes = 16 * 1024;  // the text and its masks stay in the cache
  for (size_t size = kPartBytes, searched = 0; size < valid.size(); searched = size, size *= 2)
    for (size_t end = size; end > searched && end > 0; --end)
      if (ends_word(end)) return end;
  return valid.size();
}

void WordScanner::start_part(std::string_view part) {
  masks_.fill(part, sets_);
  starts_.reset();
  next_block_ = known_start_ = num_bounds_ = 0;
}

bool WordScanner::find_bounds(std::string_view part) {
  const size_t num_blocks = (part.size() + kBytes - 1) / kBytes;
  if (next_block_ == num_blocks) return false;
  if (num_bounds_ > 0) bounds_[0] = bounds_[num_bounds_ - 1], num_bounds_ = 1;
  for (const size_t end = std::min(num_blocks, next_block_ + kBlocksAtOnce); next_block_ < end; ++next_block_)
    find_in_block(part, next_block_);
  if (next_block_ == num_blocks) bounds_[num_bounds_++] = part.size();
  return true;
}

void WordScanner::find_in_block(std::string_view part, size_t block) {
  const size_t begin = block * kBytes, end = std::min(begin + kBytes, part.size());
  const std::optional<BlockWordStarts::Starts> starts = starts_in_block(part, block);
  if (starts) return put_bounds(with_contractions(part, begin, *starts), begin);
  size_t start = known_start_;
  if (num_bounds_ > 0 && start <= bounds_[num_bounds_ - 1]) start = end_of_word(part, bounds_[num_bounds_ - 1]);
  for (; start < end; start = end_of_word(part, start)) bounds_[num_bounds_++] = start;
  known_start_ = start;
}

/// The starts in a block by arithmetic on bits, or nullopt.
std::optional<BlockWordStarts::Starts> WordScanner::starts_in_block(std::string_view part, size_t block) {
  if (rules_.family == WordRules::Family::kO200k) return std::nullopt;
  const auto bits_of = [this](size_t i) -> BlockBits {
    const CharacterMasks::Block& bits = masks_.block(i);
    const auto of = [&bits](CharacterSet set) { return bits[static_cast<size_t>(set)]; };
    return {of(kLetter), of(kNumber), of(kWhiteSpace), of(kOther), of(kSpace), of(kLineEnd)};
  };
  const size_t begin = block * kBytes, end = begin + kBytes;
  const auto is_ascii = [&](size_t i) { return static_cast<unsigned char>(part[i]) < 0x80; };
  const bool is_simple =
      end < part.size() && CharacterMasks::is_ascii(part.data() + begin) && (begin == 0 || is_ascii(begin - 1));
  if (!is_simple) {
    starts_.skip(bits_of(block));
    return std::nullopt;
  }
  const size_t last = num_bounds_ > 0 ? bounds_[num_bounds_ - 1] : 0;
  const size_t digits_in_front = part[last] >= '0' && part[last] <= '9' ? begin - last : 0;
  return starts_.of(bits_of(block), {.next = bits_of(block + 1),
                                     .next_bytes = std::min(kBytes, part.size() - end),
                                     .digits_in_front = digits_in_front});
}

/// The starts of a block with those of contractions, and without those in the words that reach into it.
uint64_t WordScanner::with_contractions(std::string_view part, size_t begin, BlockWordStarts::Starts starts) {
  uint64_t bits = starts.bits;
  if (known_start_ >= begin) {
    const size_t known = known_start_ - begin;
    bits = known >= kBytes ? 0 : (bits >> known | 1) << known;
  }
  if (!rules_.has_contractions) return bits;
  const bool ignores_case = rules_.family != WordRules::Family::kGpt2;
  uint64_t apostrophes = bits & starts.others & CharacterMasks::bits_equal(part.data() + begin, '\'');
  for (; apostrophes != 0; apostrophes &= apostrophes - 1) {
    const auto place = static_cast<size_t>(std::countr_zero(apostrophes));
    const size_t length = contraction_length(part.substr(begin + place), ignores_case);
    if (length == 0) continue;
    const uint64_t inside = ((uint64_t{1} << (length - 1)) - 1) << place << 1, behind = uint64_t{1} << place << length;
    bits = (bits & ~inside) | behind;
    if (place + length >= kBytes) known_start_ = begin + place + length;
  }
  return bits;
}

void WordScanner::put_bounds(uint64_t bits, size_t begin) {
  size_t* const bounds = bounds_.data() + num_bounds_;
  const auto count = static_cast<size_t>(std::popcount(bits));
  // Most blocks have no more words than this, so that the loop does not depend on the text.
  constexpr size_t kFew = 16;
  const auto put = [&](size_t i) {
    bounds[i] = begin + static_cast<size_t>(std::countr_zero(bits | uint64_t{1} << 63));
    bits &= bits - 1;
  };
  for (size_t i = 0; i < kFew; ++i) put(i);
  for (size_t i = kFew; i < count; ++i) put(i);
  num_bounds_ += count;
}

size_t WordScanner::end_of_gpt2_word(std::string_view text, size_t begin) const {
  const size_t core = begin + (text[begin] == ' ' ? 1 : 0);
  if (const size_t contraction = contraction_length(text.substr(begin), false)) return begin + contraction;
  if (masks_.contains(kNumber, core)) return masks_.end_of_run(kNumber, core);
  if (masks_.contains(kOther, core)) return masks_.end_of_run(kOther, core);
  const size_t end = masks_.end_of_run(kWhiteSpace, begin);
  if (end == text.size()) return end;
  const size_t last = start_of_last_character(text.substr(0, end));
  return last > begin ? last : end;  // the last one stays for the word behind
}

size_t WordScanner::end_of_llama3_word(std::string_view text, size_t begin) const {
  const bool is_o200k = rules_.family == WordRules::Family::kO200k;
  if (masks_.contains(kNumber, begin)) return end_of_digits(text, begin);
  if (!is_o200k && rules_.has_contractions)
    if (const size_t contraction = contraction_length(text.substr(begin), true)) return begin + contraction;
  if (const size_t end = end_of_letters(text, begin); end > begin) return end;
  const size_t core = begin + (text[begin] == ' ' ? 1 : 0);
  if (masks_.contains(kOther, core)) return end_of_others(text, core);
  return end_of_white_space(text, begin);
}

/// Letters with at most one character in front; `begin` if there are none.
size_t WordScanner::end_of_letters(std::string_view text, size_t begin) const {
  const bool may_be_prefix = !masks_.contains(kLetter, begin) && !is_line_end(text[begin]);
  const size_t core = begin + utf8_length(text[begin]);
  if (rules_.family == WordRules::Family::kLlama3) {
    if (masks_.contains(kLetter, begin)) return masks_.end_of_run(kLetter, begin);
    return may_be_prefix && masks_.contains(kLetter, core) ? masks_.end_of_run(kLetter, core) : begin;
  }
  // A mark may be the prefix or the first of the letters. The pattern prefers a word that ends in lower case.
  const auto with_contraction = [&](size_t end) {
    return end + (rules_.has_contractions ? contraction_length(text.substr(end), true) : 0);
  };
  for (const size_t start : {core, begin}) {
    if (start == core && !may_be_prefix) continue;
    if (const size_t end = end_of_cased_letters(start); end > start) return with_contraction(end);
  }
  for (const size_t start : {core, begin}) {
    if (start == core && !may_be_prefix) continue;
    if (const size_t end = masks_.end_of_run(kUpper, start); end > start) return with_contraction(end);
  }
  return begin;
}

/// [kUpper]*[kLower]+ with backtracking; `begin` if nothing matches.
size_t WordScanner::end_of_cased_letters(size_t begin) const {
  const size_t upper_end = masks_.end_of_run(kUpper, begin);
  if (masks_.contains(kLower, upper_end)) return masks_.end_of_run(kLower, upper_end);
  size_t end = upper_end;  // letters without case are in both sets: the last of them may be the lower part
  while (end > begin && !masks_.contains(kLower, end - 1)) --end;
  return end;
}

size_t WordScanner::end_of_digits(std::string_view text, size_t begin) const {
  if (rules_.max_digits == 0) return masks_.end_of_run(kNumber, begin);
  for (size_t i = 0; i < rules_.max_digits && masks_.contains(kNumber, begin); ++i) begin += utf8_length(text[begin]);
  return begin;
}

size_t WordScanner::end_of_others(std::string_view text, size_t begin) const {
  size_t end = masks_.end_of_run(kOther, begin);
  while (end < text.size() && (is_line_end(text[end]) || (rules_.keeps_slashes && text[end] == '/'))) ++end;
  return end;
}

size_t WordScanner::end_of_white_space(std::string_view text, size_t begin) const {
  const size_t end = masks_.end_of_run(kWhiteSpace, begin);
  if (rules_.keeps_final_space && end == text.size()) return end;
  for (size_t line_end = end; line_end > begin; --line_end)
    if (is_line_end(text[line_end - 1])) return line_end;
  if (end == text.size()) return end;
  const size_t last = start_of_last_character(text.substr(0, end));
  return last > begin ? last : end;
}

}  // namespace megatron
