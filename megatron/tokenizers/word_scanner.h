// Words of the patterns that most byte-level tokenizers have, found without a regular expression engine.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

#include "megatron/tokenizers/block_word_starts.h"
#include "megatron/tokenizers/character_masks.h"

namespace megatron {

/// The traits of a family of patterns, in which its members differ.
struct WordRules {
  enum class Family {
    kGpt2,    ///< a word is letters, digits or other characters, each with a space in front
    kLlama3,  ///< letters take any one character in front, digits take none; line ends stay with other characters
    kO200k,   ///< as kLlama3, and a word ends where lower case is followed by upper case
  };
  Family family;
  size_t max_digits = 0;           ///< in a word; 0: no limit
  bool has_contractions = true;    ///< 's 't 're 've 'm 'll 'd are words; with kO200k they end words
  bool keeps_final_space = false;  ///< white space at the end of the text is one word, with line ends or without
  bool keeps_slashes = false;      ///< slashes stay with other characters, as line ends do

  /// The rules of a pattern in Perl syntax; nullopt if it is none of those that are known.
  static std::optional<WordRules> of(std::string_view pattern);
};

/// Cuts texts as a pattern does. One thread uses it at a time. Refers to the sets of characters.
class WordScanner {
 public:
  WordScanner(const WordRules& rules, const CharacterSets& sets)
      : rules_(rules),
        sets_(sets),
        starts_({.is_llama3 = rules.family == WordRules::Family::kLlama3, .max_digits = rules.max_digits}) {}

  /// Calls `f(word)` for the words of a text, in order; put together they are the text.
  /// @param valid  valid UTF-8.
  template <class F>
  void for_each_word(std::string_view valid, F&& f) {
    for_each_batch(valid, [&f](std::string_view part, std::span<const size_t> bounds) {
      for (size_t i = 0; i + 1 < bounds.size(); ++i) f(part.substr(bounds[i], bounds[i + 1] - bounds[i]));
    });
  }
  /// Calls `f(part, bounds)` for parts of a text, in order: each word of a part is between two neighbouring bounds, of
  /// which there are two or more.
  template <class F>
  void for_each_batch(std::string_view valid, F&& f) {
    while (!valid.empty()) {
      const std::string_view part = valid.substr(0, independent_part(valid));
      start_part(part);
      while (find_bounds(part))
        if (num_bounds_ > 1) f(part, std::span<const size_t>(bounds_.data(), num_bounds_));
      valid.remove_prefix(part.size());
    }
  }

 private:
  static constexpr size_t kBlocksAtOnce = 16, kMaxBounds = kBlocksAtOnce * CharacterMasks::kBytes + 2;

  void start_part(std::string_view part);
  /// Fills `bounds_` with those of the next words, the first one where the last call ended; false at the end.
  bool find_bounds(std::string_view part);
  void find_in_block(std::string_view part, size_t block);
  std::optional<BlockWordStarts::Starts> starts_in_block(std::string_view part, size_t block);
  uint64_t with_contractions(std::string_view part, size_t begin, BlockWordStarts::Starts starts);
  void put_bounds(uint64_t bits, size_t begin);

  /// Bytes from the start of a text whose words do not depend on what follows.
  static size_t independent_part(std::string_view valid);

  /// Most words are a space and letters, which all families with one case take alike.
  size_t end_of_word(std::string_view text, size_t begin) const {
    const size_t core = begin + (text[begin] == ' ' ? 1 : 0);
    if (rules_.family != WordRules::Family::kO200k && masks_.contains(CharacterSet::kLetter, core))
      return masks_.end_of_run(CharacterSet::kLetter, core);
    return rules_.family == WordRules::Family::kGpt2 ? end_of_gpt2_word(text, begin) : end_of_llama3_word(text, begin);
  }
  size_t end_of_gpt2_word(std::string_view text, size_t begin) const;
  size_t end_of_llama3_word(std::string_view text, size_t begin) const;
  size_t end_of_letters(std::string_view text, size_t begin) const;
  size_t end_of_cased_letters(size_t begin) const;
  size_t end_of_digits(std::string_view text, size_t begin) const;
  size_t end_of_others(std::string_view text, size_t begin) const;
  size_t end_of_white_space(std::string_view text, size_t begin) const;

  WordRules rules_;
  const CharacterSets& sets_;
  CharacterMasks masks_;
  BlockWordStarts starts_;
  size_t next_block_ = 0;
  size_t known_start_ = 0;  // no other start is between it and the bounds that are found
  size_t num_bounds_ = 0;
  std::array<size_t, kMaxBounds + CharacterMasks::kBytes> bounds_;  // more are written than count
};

}  // namespace megatron
